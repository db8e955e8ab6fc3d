"""Texts for users, operators and models say plainly what is the case and what to do."""

from __future__ import annotations

import re

import pytest

from support.texts import Text, all_texts

# Figures of speech, and words that leave open who does what.
BANNED = re.compile(
    r"""(?ix) \b (?: doorbells? | rings? | rang | ears? | heard | hears? | unheard
    | whoever | whomever | somebody | someone | anybody | nobody | told | bought
    | (?:came | comes)\ (?:to | of) | (?:goes | go | went | gone)\ on
    | (?:let | lets)\ (?:it | them)sel(?:f | ves) | mends? | mended | blows? | goodbye | farewell
    | peace | patient | patience | re-?driven | driven | (?:look | looks | looked)\ for | it\ is\ so
    | (?:is | was)\ due | lives | lived )\b
    | (?<!there\ ) \b is\ no\b(?!\ longer) | \b a\ (?=[aeio]\w) (?!one\b | once\b)
    """
)
TEXTS = all_texts()


@pytest.mark.parametrize("kind", ["API document", "API error", "command line", "error", "help", "log"])
def test_every_kind_of_text_is_found(kind: str) -> None:
    """A table that lacks a kind would prove nothing about it."""
    assert sum(text.kind == kind for text in TEXTS) > 10


def test_texts_are_plain() -> None:
    """No text has a figure of speech, or the wrong article before a word."""
    assert [found for found in map(_complaint, TEXTS) if found] == []


def _complaint(text: Text) -> str | None:
    match = BANNED.search(text.text)
    return f"{text.place}: {match[0]!r} in: {text.text}" if match else None
