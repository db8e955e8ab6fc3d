"""Text that arrives in pieces.

Servers that think in UTF-16 cut text inside a surrogate pair.  Each half alone can be neither shown,
stored nor sent.
"""

from __future__ import annotations

import attrs

from hango.codec import clean_text


def join_surrogates(text: str) -> str:
    """Make one character of each surrogate pair; halves without their other half stay."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@attrs.define
class TextJoiner:
    """Joins the pieces of one text; no character is given out in halves."""

    _half: str = ""

    def push(self, piece: str) -> str:
        """Return *piece* cleaned; a first half at its end is held back for the next piece."""
        text = self._half + piece
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return clean_text(join_surrogates(text))

    def finish(self) -> str:
        """Return the mark of a broken character if a half was held back, else nothing."""
        half, self._half = self._half, ""
        return clean_text(half)
