"""Text that a model or a user wrote, shown in a terminal."""

from __future__ import annotations

import json

import pytest

from hango.text import escape_unprintable, printable

HARMLESS = [
    "plain",
    "ä 漢字 שלום",
    "a\N{NO-BREAK SPACE}b\N{IDEOGRAPHIC SPACE}c",
    "👨\N{ZERO WIDTH JOINER}👩",
    "❤️",
]
OBEYED = [
    *map(chr, [*range(32), *range(0x7F, 0xA0)]),
    *"\u202e\u2066\u200f\u2028\u2029\ufeff\ud800\U000e0041",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_text_in_any_script_is_shown_as_it_is(text: str) -> None:
    """What a terminal only draws is left alone."""
    assert printable(text) == escape_unprintable(text) == text


@pytest.mark.parametrize("character", OBEYED, ids=ascii)
def test_what_a_terminal_obeys_is_not_shown(character: str) -> None:
    """S-L6: escapes, C1 controls and marks of direction do nothing, and JSON keeps its meaning."""
    kept = character in "\n\t"
    assert (character in printable(f"a{character}b")) is kept
    text = json.dumps({"text": f"a{character}b"}, ensure_ascii=False)
    escaped = escape_unprintable(text)
    assert character not in escaped
    assert json.loads(escaped) == json.loads(text)
