"""The codec: what crosses a border is clean, bounded, and otherwise what it was."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango import codec
from hango.domain import (
    Block,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.errors import InvalidInput

pytestmark = pytest.mark.rule(20)

wild_text = st.text(st.characters() | st.sampled_from("\0\ud800\udfff\U0001f600"))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
wild_json = st.recursive(
    scalars | wild_text,
    lambda inner: st.lists(inner) | st.dictionaries(wild_text, inner),
    max_leaves=20,
)


def storable(text: str) -> bool:
    """Tell whether Postgres and UTF-8 can hold *text*."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


# --- text -----------------------------------------------------------------------------------


@given(wild_text)
def test_cleaned_text_can_be_stored_and_keeps_all_else(text: str) -> None:
    """C01: NUL and lone surrogates become U+FFFD; every other character stays where it was."""
    clean = codec.clean_text(text)
    assert storable(clean)
    assert len(clean) == len(text)
    assert all(
        after == (before if storable(before) else "\ufffd")
        for before, after in zip(text, clean, strict=True)
    )


def test_an_escaped_nul_written_as_text_is_not_damaged() -> None:
    r"""C01: the six characters \u0000 are text like any other."""
    assert codec.clean_text(r"\u0000") == r"\u0000"
    assert json.loads(codec.dump_json({r"\u0000": r"\\u0000"})) == {r"\u0000": r"\\u0000"}


@given(wild_text)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    """Clean text is clean."""
    assert codec.clean_text(codec.clean_text(text)) == codec.clean_text(text)


@given(wild_text, st.integers(0, 400))
def test_cut_text_fits_and_is_a_beginning_of_the_text(text: str, limit: int) -> None:
    """C10: at most *limit* bytes, cut between characters, told when there is room to tell."""
    cut = codec.cut_text(text, limit)
    assert len(cut.encode()) <= limit
    clean = codec.clean_text(text)
    if len(clean.encode()) <= limit:
        assert cut == clean
        return
    notice = codec.CUT_NOTICE.format(length=len(text))
    assert clean.startswith(cut.removesuffix(notice))
    assert cut.endswith(notice) == (len(notice.encode()) <= limit)


@pytest.mark.parametrize("limit", range(1, 60))
def test_a_text_longer_than_any_limit_is_never_cut_to_nothing(limit: int) -> None:
    """A limit too small for the notice still shows the beginning."""
    assert codec.cut_text("a" * 1000, limit)


def test_a_character_of_four_bytes_at_the_bound_is_left_out_whole() -> None:
    """C10: 64 KiB and one byte, ending inside a character."""
    text = "a" * (65536 - 3) + "\U0001f600"
    cut = codec.cut_text(text, 65536)
    assert len(cut.encode()) <= 65536
    assert "\ufffd" not in cut


# --- JSON -----------------------------------------------------------------------------------


@given(wild_json)
def test_cleaned_json_is_json_that_can_be_stored(value: object) -> None:
    """C01, C09: what `dump_json` writes is JSON, UTF-8, and free of NUL, keys included."""
    text = codec.dump_json(value)
    assert storable(text)
    assert r"\u0000" not in text.replace(r"\\", "")
    assert json.loads(text) == codec.clean_json(value)
    assert codec.clean_json(codec.clean_json(value)) == codec.clean_json(value)


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers()))
def test_keys_keep_their_order(value: dict[str, int]) -> None:
    """An append-only log keeps the order a provider wrote."""
    assert list(json.loads(codec.dump_json(value))) == list(value)


class Hostile:
    """An object that cannot even be shown."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError

    __repr__ = __str__


def _endless_list() -> object:
    endless: list[object] = []
    endless.append(endless)
    return endless


def _endless_object() -> object:
    endless: dict[str, object] = {}
    endless["again"] = [endless, endless]
    return endless


def _doubling() -> object:
    value: object = "leaf"
    for _ in range(codec.MAX_DEPTH - 2):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"\xff",
        lambda: {1, 2},
        lambda: {1: "a key that is a number"},
        lambda: float("nan"),
        lambda: [math.inf],
        lambda: {"deep": {"er": -math.inf}},
        lambda: 10**5000,
        Hostile,
        lambda: [Hostile()],
        _endless_list,
        _endless_object,
        _doubling,
        lambda: ["x" * codec.MAX_SIZE],
    ],
)
def test_what_json_has_no_word_for_is_refused(make: Callable[[], object]) -> None:
    """C09: not JSON, endless, or growing without end: one kind of error, at once."""
    with pytest.raises(InvalidInput):
        codec.dump_json(make())


@given(st.integers(-(10**1000) + 1, 10**1000 - 1))
def test_whole_numbers_are_exact(value: int) -> None:
    """Numbers that Python can write go through as they are."""
    assert json.loads(codec.dump_json(value)) == value


# --- blocks ---------------------------------------------------------------------------------

plain = st.text(max_size=20)
objects = st.dictionaries(plain, st.integers() | plain, max_size=3)
blocks = st.one_of(
    st.builds(TextBlock, text=plain),
    st.builds(ThinkingBlock, thinking=plain, signature=plain),
    st.builds(RedactedThinkingBlock, data=plain),
    st.builds(ToolUseBlock, id=plain, name=plain, input=objects, raw_input=st.none() | plain),
    st.builds(
        ToolResultBlock,
        tool_use_id=plain,
        content=plain,
        is_error=st.booleans(),
        for_user=st.none() | plain,
    ),
    st.builds(OpaqueBlock, provider=plain, raw=objects),
)


@given(st.lists(blocks))
def test_blocks_come_back_as_they_were(sent: list[Block]) -> None:
    """The JSON shape loses nothing."""
    assert list(codec.blocks_from_json(codec.blocks_to_json(sent))) == sent


def test_every_kind_of_block_has_its_json() -> None:
    """A block added to the vocabulary is added to the codec."""
    assert {type(block) for block in codec.blocks_from_json(_ONE_OF_EACH)} == set(Block.__args__)


_ONE_OF_EACH = [
    {"type": "text", "text": "a"},
    {"type": "thinking", "thinking": "a", "signature": "s"},
    {"type": "redacted_thinking", "data": "d"},
    {"type": "tool_use", "id": "1", "name": "n", "input": {}},
    {"type": "tool_result", "tool_use_id": "1", "content": "c"},
    {"type": "opaque", "provider": "p", "raw": {}},
]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("text", ""),
        ({"type": "text", "text": "not in a list"}, ""),
        ([None], "0"),
        (["text"], "0"),
        ([{"text": "no type"}], "0"),
        ([{"type": []}], "0"),
        ([{"type": "text"}], "0.text"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": 5}], "1"),
        ([{"type": "text", "text": "a", "colour": "red"}], "0.colour"),
        ([{"type": "tool_use", "id": "1", "name": "n", "input": []}], "0"),
        ([{"type": "tool_result", "tool_use_id": "1", "content": "c", "is_error": "no"}], "0"),
    ],
)
def test_a_wrong_block_is_named(value: object, field: str) -> None:
    """A client learns which block is wrong, and nothing is quietly converted."""
    with pytest.raises(InvalidInput) as raised:
        codec.blocks_from_json(value)
    assert raised.value.field.startswith(field)


@given(
    st.recursive(scalars | wild_text, lambda i: st.lists(i) | st.dictionaries(plain, i), max_leaves=9)
)
def test_reading_blocks_raises_nothing_else(value: object) -> None:
    """Whatever JSON a client sends is either blocks or `InvalidInput`."""
    try:
        read = codec.blocks_from_json(value)
    except InvalidInput:
        return
    assert all(attrs.has(type(block)) for block in read)


@given(st.sampled_from(_ONE_OF_EACH), plain, st.recursive(scalars | plain, st.lists, max_leaves=4))
def test_a_block_with_one_field_replaced_is_read_or_refused(
    block: dict[str, object], key: str, value: object
) -> None:
    """Any one field may be anything."""
    for name in (*block, key):
        try:
            codec.blocks_from_json([block | {name: value}])
        except InvalidInput as error:
            assert error.field.startswith("0")  # noqa: PT017  # both outcomes are right
