"""The parser of server-sent events: any cut of the bytes gives the same events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.errors import ProviderStreamBroken
from hango.providers.sse import SseEvent, SseParser

# Two events, of every character width UTF-8 has, with all that may stand between them.
STREAM = "\ufeffdata: naïve 東 🙂\n: note\n\nid: 7\nevent: error\ndata:a\ndata:  b\nretry: 5\n\n"
EVENTS = [SseEvent("naïve 東 🙂"), SseEvent("a\n b", "error")]


def parse(*pieces: bytes) -> list[SseEvent]:
    """Feed *pieces* one after another, then the end."""
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_every_cut_gives_the_same_events(end: str) -> None:
    """A01, A02: one cut, at every byte, under each of the three line ends, changes nothing."""
    data = STREAM.replace("\n", end).encode()
    for cut in range(len(data) + 1):
        assert parse(data[:cut], data[cut:]) == EVENTS, cut


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_bytes_one_by_one_give_the_same_events(end: str) -> None:
    """A01, A02: nor does a read for each byte, empty reads between them included."""
    data = STREAM.replace("\n", end).encode()
    pieces = [piece for byte in data for piece in (bytes([byte]), b"")]
    assert parse(*pieces) == EVENTS


@given(st.text("ab:\n\r \ufeffé🙂", max_size=40), st.lists(st.integers(0, 80), max_size=6))
def test_cuts_change_nothing_for_any_text(text: str, cuts: list[int]) -> None:
    """A01, A02: whatever the text, the parts give what the whole gives."""
    data = ("data:" + text).encode()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(bounds)]
    assert parse(*pieces) == parse(data)


@given(st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=4, max_size=4))
def test_line_ends_may_be_mixed(ends: list[str]) -> None:
    """A02: each line may end in its own way."""
    a, b, c, d = ends
    # a CR and a LF beside each other are one end, so the blank line must not begin with its half
    blank = "\r\n" if c == "\r" and d == "\n" else d
    assert parse(f"data:1{a}data:2{b}: x{c}{blank}".encode()) == [SseEvent("1\n2")]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("", []),
        ("\n\n\n", []),
        (": only a comment\n\n", []),
        ("event: error\n\n", []),
        ("data\n\n", [SseEvent("")]),
        ("data:\n\n", [SseEvent("")]),
        ("data:x\n\n", [SseEvent("x")]),
        ("data: x\n\n", [SseEvent("x")]),
        ("data:  x\n\n", [SseEvent(" x")]),
        ("data: a: b\n\n", [SseEvent("a: b")]),
        ("event: error\n\ndata: x\n\n", [SseEvent("x")]),
        ("unknown: y\ndata: x\n\n", [SseEvent("x")]),
        ("data: \ufeffx\n\n", [SseEvent("\ufeffx")]),
        ("data: no blank line", [SseEvent("no blank line")]),
        ("data: one end\n", [SseEvent("one end")]),
        ("data: one end\r", [SseEvent("one end")]),
    ],
)
def test_fields_are_read_by_the_standard(text: str, events: list[SseEvent]) -> None:
    """A02: spaces, colons, comments, unknown fields, and a last event that nothing ends."""
    assert parse(text.encode()) == events


def test_bytes_that_are_no_utf8_become_marks() -> None:
    """A01: a broken byte is a mark of its own, and what follows is read on."""
    assert parse(b"data: a\xffb\n\ndata: c\n\n") == [SseEvent("a\ufffdb"), SseEvent("c")]


def test_an_event_without_end_is_refused() -> None:
    """A line, or an event of many lines, that never ends does not fill the memory."""
    for piece in (b"x" * 60, b"data: " + b"x" * 30 + b"\n"):
        parser = SseParser(limit=100)
        assert parser.feed(piece) == []
        with pytest.raises(ProviderStreamBroken) as caught:
            parser.feed(piece * 3)
        assert caught.value.code == "event_too_large"


def test_comments_do_not_count_against_the_limit() -> None:
    """A server may stay alive by comments for as long as it likes."""
    parser = SseParser(limit=100)
    for _ in range(50):
        assert parser.feed(b": keep-alive\n") == []
    assert parser.feed(b"data: x\n\n") == [SseEvent("x")]
