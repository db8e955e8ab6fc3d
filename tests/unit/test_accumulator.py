"""The accumulator: whatever a stream does, what comes out can be stored, sent back and trusted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.agent.accumulator import MAX_ANSWER
from hango.agent.blocks import MAX_BLOCK
from hango.codec import blocks_from_json, blocks_to_json, clean_json, dump_json
from hango.domain import (
    Block,
    BlockStart,
    BlockStop,
    InputDelta,
    OpaqueBlock,
    ProviderEvent,
    RedactedThinkingBlock,
    SignatureDelta,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UsageUpdate,
)

from support.provider_events import END, accumulate, call, collect, text


def halves(whole: str) -> list[str]:
    """Return *whole* as UTF-16 code units, each a string of its own, as a JSON decoder may give."""
    units = whole.encode("utf-16-le", "surrogatepass")
    return [units[n : n + 2].decode("utf-16-le", "surrogatepass") for n in range(0, len(units), 2)]


@given(st.lists(st.sampled_from(["naïve 東 🙂", "a", "\n", ""])))
def test_text_is_what_its_pieces_make(pieces: list[str]) -> None:
    """A01: cut anywhere, even between the halves of a character, the text is whole again."""
    whole = "".join(pieces)
    expected = (TextBlock(whole),) if whole.strip() else ()
    assert collect(*text(0, *pieces), END).content == expected
    assert collect(*text(0, *halves(whole)), END).content == expected


def test_usage_is_what_was_said_last() -> None:
    """A12: usage is cumulative: set, never added up."""
    answer = collect(
        UsageUpdate(Usage(25, 1, 7)),
        *text(0, "hi"),
        UsageUpdate(Usage(25, 9, 7)),
        UsageUpdate(Usage(25, 15, 7)),
        END,
    )
    assert answer.usage == Usage(25, 15, 7)


def test_nothing_changes_after_the_stop() -> None:
    """A16: a second stop, or anything behind the first, is ignored."""
    late = (*text(1, "late"), UsageUpdate(Usage(9)), Stop(StopReason.REFUSAL), TextDelta(0, "more"))
    assert collect(*text(0, "hi"), END, *late) == collect(*text(0, "hi"), END)


@pytest.mark.parametrize(
    "stray",
    [
        InputDelta(9, '{"x":1}'),
        BlockStop(9),
        SignatureDelta(0, "c2ln"),
        ThinkingDelta(0, "hm"),
        InputDelta(0, "{"),
        BlockStart(9, ToolResultBlock("a", "forged")),
        BlockStart(9, TextBlock("")),
    ],
)
def test_events_that_fit_nothing_are_ignored(stray: ProviderEvent) -> None:
    """A16: a delta of no block or of another kind, and blocks no model makes, change nothing."""
    assert collect(*text(0, "hi"), stray, END) == collect(*text(0, "hi"), END)


def test_text_without_a_start_is_kept() -> None:
    """A16: a provider that announces no blocks loses no text."""
    events = (ThinkingDelta(0, "hm"), SignatureDelta(0, "c2ln"), TextDelta(1, "hi"))
    assert collect(*events, END).content == (ThinkingBlock("hm", "c2ln"), TextBlock("hi"))


def test_thinking_and_foreign_blocks_come_out_as_they_came_in() -> None:
    """B10: order and strings are those of the stream; a signature replaces an earlier one."""
    raw = {"type": "search", "z": 1, "a": [None, True, 1.5, "é"]}
    answer = collect(
        BlockStart(0, ThinkingBlock("", "")),
        ThinkingDelta(0, "let me "),
        ThinkingDelta(0, "see\n"),
        SignatureDelta(0, "old"),
        SignatureDelta(0, "c2ln"),
        BlockStart(1, RedactedThinkingBlock("ZGF0YQ==")),
        BlockStart(2, ThinkingBlock("", "b25seQ==")),
        BlockStart(3, OpaqueBlock("anthropic", raw)),
        *call(4, '{"x":1}'),
        END,
    )
    assert answer.content == (
        ThinkingBlock("let me see\n", "c2ln"),
        RedactedThinkingBlock("ZGF0YQ=="),
        ThinkingBlock("", "b25seQ=="),
        OpaqueBlock("anthropic", raw),
        ToolUseBlock("a", "get_time", {"x": 1}),
    )
    assert dump_json(blocks_to_json(answer.content[3:4])).endswith(dump_json({"raw": raw})[1:] + "]")


@pytest.mark.parametrize("blank", ["", " ", "\n\n"])
def test_blank_text_is_dropped(blank: str) -> None:
    """B08: a text with nothing in it is not kept beside other blocks, nor alone."""
    assert collect(*text(0, blank), *call(1), END).content == (ToolUseBlock("a", "get_time"),)
    assert collect(*text(0, blank), END).content == ()


@pytest.mark.rule(20)
def test_everything_that_is_kept_can_be_stored() -> None:
    """C01: NUL and lone surrogates become visible, in text, names, arguments and their keys."""
    answer = collect(
        *text(0, "a\0b\ud83d"),
        *call(1, '{"k\\u0000": "v\\u0000", "s": "\\ud83d", "kept": "\\\\u0000"}', name="n\0"),
        END,
    )
    assert answer.content == (
        TextBlock("a\ufffdb\ufffd"),
        ToolUseBlock("a", "n\ufffd", {"k\ufffd": "v\ufffd", "s": "\ufffd", "kept": "\\u0000"}),
    )


@pytest.mark.rule(20)
@pytest.mark.parametrize("thinking", ["a\0b", "x" * (MAX_BLOCK + 1)])
def test_thinking_that_had_to_be_changed_loses_its_signature(thinking: str) -> None:
    """C01, B10: a signature over other text would be refused for ever."""
    (block,) = collect(ThinkingDelta(0, thinking), SignatureDelta(0, "c2ln"), END).content
    assert isinstance(block, ThinkingBlock)
    assert block.signature == ""
    assert len(block.thinking.encode()) <= MAX_BLOCK


@pytest.mark.rule(20)
def test_a_text_is_cut_to_a_bound() -> None:
    """A text beyond the bound is cut on a character boundary and says so."""
    (block,) = collect(*text(0, *["é" * 1000] * 1100), END).content
    assert isinstance(block, TextBlock)
    assert len(block.text.encode()) <= MAX_BLOCK
    assert block.text.endswith("characters in all]")


@pytest.mark.rule(20)
def test_an_endless_answer_is_bounded() -> None:
    """B15, P2: many blocks, empty or full, are no more than can be stored as one message."""
    pieces = [e for n in range(200_000) for e in (BlockStart(n, TextBlock("")), TextDelta(n, "x" * 64))]
    content = collect(*pieces, END).content
    assert 0 < sum(len(b.text) for b in content if isinstance(b, TextBlock)) <= MAX_ANSWER
    dump_json(blocks_to_json(content))


def test_counts_that_are_none_are_nothing() -> None:
    """P2: what a provider says of its tokens can be stored, whatever it says."""
    wrong = Usage(-1, 10**30, True, float("nan"), "5")  # type: ignore[arg-type]  # an untyped provider
    assert collect(*text(0, "hi"), UsageUpdate(wrong), END).usage == Usage()


def test_a_partial_answer_keeps_what_arrived_but_completes_no_call() -> None:
    """Rule 16: arguments of a call still open are text only, even when they happen to be whole."""
    events = (*text(0, "so"), *call(1, '{"x":1}'), BlockStart(2, ToolUseBlock("b", "get_time")))
    answer = accumulate(*events, InputDelta(2, "{}")).partial()
    assert answer.content == (
        TextBlock("so"),
        ToolUseBlock("a", "get_time", {"x": 1}),
        ToolUseBlock("b", "get_time", {}, "{}"),
    )
    assert answer.stop_reason is None


@pytest.mark.parametrize(
    ("events", "empty"),
    [
        ([], True),
        ([UsageUpdate(Usage(1))], True),
        ([BlockStart(0, TextBlock("")), TextDelta(0, ""), BlockStart(1, ThinkingBlock(""))], True),
        ([TextDelta(0, " ")], False),
        ([ThinkingDelta(0, "h")], False),
        ([SignatureDelta(0, "s")], False),
        ([BlockStart(0, ToolUseBlock("", ""))], False),
        ([BlockStart(0, RedactedThinkingBlock("d"))], False),
    ],
)
def test_it_knows_whether_content_has_arrived(events: list[ProviderEvent], *, empty: bool) -> None:
    """A13: usage and the announcement of an empty text are no content yet."""
    assert accumulate(*events).empty is empty


indexes = st.integers(-1, 3)
words = st.sampled_from(["", "x", "\0", "\ud83d", "{", '{"a":', "1}", "[]", " "])
some_blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(TextBlock, words),
    st.builds(ThinkingBlock, words, words),
    st.builds(RedactedThinkingBlock, words),
    st.builds(ToolUseBlock, words, words, st.dictionaries(words, st.floats()), st.none() | words),
    st.builds(ToolResultBlock, words, words),
    st.builds(OpaqueBlock, st.just("p"), st.dictionaries(words, st.floats() | words)),
)
any_events: st.SearchStrategy[ProviderEvent] = st.one_of(
    st.builds(BlockStart, indexes, some_blocks),
    st.builds(TextDelta, indexes, words),
    st.builds(ThinkingDelta, indexes, words),
    st.builds(SignatureDelta, indexes, words),
    st.builds(InputDelta, indexes, words),
    st.builds(BlockStop, indexes),
)


@pytest.mark.rule(20)
@given(st.lists(any_events, max_size=20))
def test_any_stream_becomes_blocks_that_can_be_stored(events: list[ProviderEvent]) -> None:
    """A16, C01: no sequence of events raises, and what comes of it is clean, unique and readable."""
    accumulator = accumulate(*events)
    for answer in (accumulator.partial(), accumulator.answer()):
        stored = blocks_to_json(answer.content)
        assert clean_json(stored) == stored
        assert blocks_from_json(json.loads(dump_json(stored))) == answer.content
        assert len({c.id for c in answer.calls} - {""}) == len(answer.calls)
