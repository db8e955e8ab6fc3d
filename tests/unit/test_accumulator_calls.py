"""Calls in the accumulator: whole, apart from each other, and never guessed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.agent.accumulator import BLOCK_COST
from hango.agent.blocks import MAX_BLOCK
from hango.codec import MAX_DEPTH, blocks_to_json, dump_json
from hango.domain import (
    BlockStart,
    BlockStop,
    InputDelta,
    ToolUseBlock,
)

from support.provider_events import END, call, collect, text


def cut(whole: str, places: Sequence[int]) -> list[str]:
    """Return *whole* cut at *places*."""
    at = sorted(place % (len(whole) + 1) for place in places)
    return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]


@given(
    st.dictionaries(
        st.sampled_from(["timezone", "é", "🌍"]), st.sampled_from(["Asia/Tokyo", "é🌍", 'a"b\\'])
    ),
    st.lists(st.integers(0, 200), max_size=9),
)
def test_arguments_are_parsed_once_from_all_their_pieces(
    arguments: dict[str, str], places: list[int]
) -> None:
    """A04: cut inside a key, an escape or a surrogate pair's escape, the object is exact."""
    for ensure_ascii in (True, False):
        pieces = cut(json.dumps(arguments, ensure_ascii=ensure_ascii), places)
        assert collect(*call(0, *pieces), END).content == (ToolUseBlock("a", "get_time", arguments),)


@pytest.mark.parametrize("pieces", [[], [""], ["", ""], [" \n"], ["{}"], ["nu", "ll"]])
def test_no_arguments_are_an_empty_object(pieces: list[str]) -> None:
    """A05, P4: however a provider says that there are none."""
    assert collect(*call(0, *pieces), END).content == (ToolUseBlock("a", "get_time", {}),)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], {"url": "https://a.test/"}),
        ([""], {"url": "https://a.test/"}),
        (['{"url":"b"}'], {"url": "b"}),
    ],
)
def test_arguments_given_at_the_start_stay_unless_deltas_arrive(
    pieces: list[str], expected: dict[str, str]
) -> None:
    """A06: some providers send the whole input when the block starts."""
    start = BlockStart(0, ToolUseBlock("a", "http_fetch", {"url": "https://a.test/"}))
    answer = collect(start, *(InputDelta(0, piece) for piece in pieces), BlockStop(0), END)
    assert answer.content == (ToolUseBlock("a", "http_fetch", expected),)


def test_parallel_calls_keep_their_own_arguments() -> None:
    """A07: fragments go by index, and calls come out in its order, not in that of arrival."""
    answer = collect(
        BlockStart(5, ToolUseBlock("b", "http_fetch")),
        BlockStart(1, ToolUseBlock("a", "get_time")),
        InputDelta(1, '{"x"'),
        InputDelta(5, '{"y"'),
        InputDelta(1, ":1}"),
        InputDelta(5, ":2}"),
        END,
    )
    assert answer.content == (
        ToolUseBlock("a", "get_time", {"x": 1}),
        ToolUseBlock("b", "http_fetch", {"y": 2}),
    )


def test_a_second_block_at_an_index_opens_another_call() -> None:
    """A09: providers that number every call 0 do not glue names or arguments together."""
    answer = collect(*call(0, '{"x":1}'), *call(0, '{"x":2}', call_id="b", name="other"), END)
    assert answer.content == (
        ToolUseBlock("a", "get_time", {"x": 1}),
        ToolUseBlock("b", "other", {"x": 2}),
    )


def test_a_call_announced_twice_is_one_call() -> None:
    """A16: a repeated start does not run a tool twice."""
    head = BlockStart(0, ToolUseBlock("a", "get_time"))
    answer = collect(head, InputDelta(0, '{"x"'), head, InputDelta(0, ":1}"), END)
    assert answer.content == (ToolUseBlock("a", "get_time", {"x": 1}),)


@pytest.mark.parametrize(
    ("given_ids", "expected"),
    [
        (["", ""], ["call_3_0", "call_3_1"]),
        (["a", "a"], ["a", "a_2"]),
        (["", "call_3_0"], ["call_3_0_2", "call_3_0"]),
        (["x" * 300, "a"], ["call_3_0", "a"]),
        (["\0", "\ud83d"], ["call_3_0", "call_3_1"]),
    ],
)
def test_every_call_has_an_id_of_its_own(given_ids: list[str], expected: list[str]) -> None:
    """A10: an id that is missing, repeated or cannot be stored is replaced by a stable one."""
    events = [e for n, call_id in enumerate(given_ids) for e in call(n, call_id=call_id)]
    assert [c.id for c in collect(*events, END).calls] == expected


@pytest.mark.parametrize(
    "arguments",
    [
        '{"url": "http://a"',
        "[]",
        '"x"',
        "3",
        "true",
        "{} {}",
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a":' * 100_000,
        '{"a":' * 70 + "1" + "}" * 70,
        '{"a": "' + "x" * MAX_BLOCK + '"}',
    ],
    ids=range(13),
)
def test_arguments_that_are_no_object_are_kept_as_text_and_never_guessed(arguments: str) -> None:
    """C04, C05: malformed, not an object, not storable or too long: raw text, bounded, and no input."""
    (block,) = collect(*call(0, arguments), END).calls
    assert block.input == {}
    assert block.raw_input is not None
    assert block.raw_input[:100] == arguments[:100]
    assert len(block.raw_input.encode()) <= MAX_BLOCK


def test_a_start_whose_input_cannot_be_stored_is_kept_as_text() -> None:
    """C05: the same for input that did not arrive as text."""
    start = BlockStart(0, ToolUseBlock("a", "get_time", {"x": float("nan")}))
    assert collect(start, END).calls == (ToolUseBlock("a", "get_time", {}, "{'x': nan}"),)


def test_raw_arguments_of_a_provider_stay_raw() -> None:
    """C05: a provider that could not read the arguments says so, and no tool runs on a guess."""
    start = BlockStart(0, ToolUseBlock("a", "get_time", {}, "{oops"))
    assert collect(start, END).calls == (ToolUseBlock("a", "get_time", {}, "{oops"),)


@pytest.mark.rule(20)
@pytest.mark.parametrize("depth", range(MAX_DEPTH - 12, MAX_DEPTH + 2))
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"x":', "}")])
def test_arguments_of_any_depth_can_be_stored(depth: int, opening: str, closing: str) -> None:
    """P2: read as an object or kept as text, whatever they are; one bound decides, in one place."""
    arguments = '{"x":' + opening * depth + "1" + closing * depth + "}"
    answer = collect(*call(0, arguments), END)
    (block,) = answer.calls
    assert (block.raw_input is None) == (block.input == json.loads(arguments))
    dump_json(blocks_to_json(answer.content))


@pytest.mark.rule(20)
def test_calls_that_are_too_much_together_stay_text() -> None:
    """P2: each alone could be stored; what no longer fits is text, and all of it is stored."""
    much = '{"x": [' + ",".join("0" * 100_000) + "]}"
    answer = collect(*(e for n in range(4) for e in call(n, much, call_id=f"c{n}")), END)
    assert [bool(block.input) for block in answer.calls] == [True, False, False, False]
    dump_json(blocks_to_json(answer.content))


@pytest.mark.rule(20)
def test_arguments_that_no_longer_fit_are_not_taken_for_none() -> None:
    """C05: a call at the bound of an answer is malformed, not a call without arguments."""
    filler = [e for n in range(8) for e in text(n, "x" * (MAX_BLOCK - 2 * BLOCK_COST))]
    (block,) = collect(*filler, *call(9, '{"path": "' + "x" * 20_000 + '"}'), END).calls
    assert (block.input, block.raw_input) == ({}, "")


def test_calls_beyond_the_bound_are_counted_and_not_kept() -> None:
    """B15: thousands of calls in one answer leave the bound, and a number."""
    answer = collect(*(e for n in range(5000) for e in call(n, "{}", call_id=f"c{n}")), END)
    assert [c.id for c in answer.calls] == [f"c{n}" for n in range(64)]
    assert answer.refused_calls == 5000 - 64


def test_arguments_of_a_call_beyond_the_bound_reach_no_other() -> None:
    """B15, A09: also where every call has the same index."""
    answer = collect(*call(0, '{"x":1}'), *call(0, '{"x":2}', call_id="b"), END, max_calls=1)
    assert answer.content == (ToolUseBlock("a", "get_time", {"x": 1}),)
