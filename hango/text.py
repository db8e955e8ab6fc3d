"""Text that arrives in pieces, and text that is shown in a terminal.

Servers that count in UTF-16 cut text inside a surrogate pair.  Each half alone can be neither shown,
stored nor sent.
"""

from __future__ import annotations

import unicodedata

import attrs

from hango.codec import clean_text


def join_surrogates(text: str) -> str:
    """Make one character of each surrogate pair; halves without their other half stay."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def printable(text: str) -> str:
    """Replace what could move the cursor, recolour or reorder text in a terminal; keep line breaks."""
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def escape_unprintable(text: str) -> str:
    r"""Write what a terminal would obey as ``\uXXXX``; JSON stays the same JSON."""
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _is_shown(character: str) -> bool:
    # spaces of other scripts, and the joiners that emoji, Persian and Indic words need
    return (
        character.isprintable()
        or unicodedata.category(character) == "Zs"
        or character in "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
    )


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
