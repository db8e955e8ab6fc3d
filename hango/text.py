"""Text that arrives in pieces, and text that is shown in a terminal.

Servers that count in UTF-16 cut text inside a surrogate pair.  Each half alone can be neither shown,
stored nor sent.
"""

from __future__ import annotations

import re
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


@attrs.define
class GrowingText:
    """A text made of pieces: adding one does not copy all before it."""

    _parts: list[str] = attrs.field(factory=list)

    def add(self, piece: str) -> None:
        """Add *piece* at the end."""
        if piece:
            self._parts.append(piece)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __str__(self) -> str:
        self._parts = ["".join(self._parts)] if self._parts else []
        return self._parts[0] if self._parts else ""


# What matters outside the strings of JSON, and within
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING = re.compile(r'["\\]')


@attrs.define
class BracketReader:
    """Finds where a JSON object that arrives in pieces ends; reads every character once.

    Attributes:
        closed: the outermost bracket was closed.
        more: text came after that.
        _depth: brackets that are open.
        _in_string: a string is open.
        _escaped: the next character belongs to a backslash.
    """

    closed: bool = False
    more: bool = False
    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False

    def read(self, piece: str) -> None:
        """Read the next piece."""
        place = 1 if self._escaped and piece else 0
        self._escaped = self._escaped and not piece
        while place < len(piece) and not self.closed:
            found = (_STRING if self._in_string else _STRUCTURE).search(piece, place)
            if found is None:
                return
            place = found.end() + (found[0] == "\\")
            self._take(found[0])
        self._escaped = place > len(piece)
        self.more = self.more or (self.closed and bool(piece[place:].strip()))

    def _take(self, character: str) -> None:
        if character == '"':
            self._in_string = not self._in_string
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.closed = self._depth <= 0
