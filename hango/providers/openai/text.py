"""Text out of a stream: pure.

One rule: a character is never told in halves.  Servers that think in UTF-16 cut deltas inside a
surrogate pair; each half alone is no text that can be shown, stored or sent.
"""

from __future__ import annotations

import attrs

from hango.codec import clean_text


@attrs.define
class Joiner:
    """Joins the pieces of one text."""

    _half: str = ""

    def push(self, piece: str) -> str:
        """Return *piece* as it can be told: cleaned, with a first half held back for its second."""
        text = self._half + piece
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        # surrogatepass writes halves as they are, so that reading finds them together
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return clean_text(joined)

    def finish(self) -> str:
        """Return what was held back and got no second half: the mark of a broken character."""
        half, self._half = self._half, ""
        return clean_text(half)
