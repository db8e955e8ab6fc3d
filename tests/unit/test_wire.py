"""JSON bodies, ids and pages: what is taken, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SerializerFunctionWrapHandler, model_serializer

from hango.db.queries import Row
from hango.errors import InvalidInput, NotFound
from hango.store.accounts import NewKey
from hango.store.pages import INLINE_BYTES
from hango.store.pages import Page as Rows
from hango.web.models.responses import NewKeyJson, Page
from hango.web.problem import ApiError
from hango.web.wire import read_id
from hango.web.wire.bodies import parse_json
from hango.web.wire.pages import cursor_of, page_response, read_id_cursor, read_limit, read_seq_cursor

NOT_JSON = [
    b"",
    b" ",
    b"{",
    b"[1,]",
    b'{"a":1,}',
    b"{'a':1}",
    b'{"a" 1}',
    b'{"a":1}}',
    b'{"a":1} x',
    b"// no\n1",
    b"01",
    b"+1",
    b".5",
    b"1.",
    b"0x1",
    b"nul",
    b"True",
    b'"\x01"',
    b'"tab\tinside"',
    b'"\\x"',
    b'"\\u12"',
    b'"open',
    b"\xef\xbb\xbf1",  # byte order mark
    b'"\xff"',
    b'"\xc0\xaf"',  # overlong
    b'"\xed\xa0\x80"',  # a surrogate in UTF-8
    '{"a":1}'.encode("utf-16"),
    '{"a":1}'.encode("utf-32"),
    b"NaN",
    b"[Infinity]",
    b"-Infinity",
    b"1e400",
    b"-1e400",
    b"9" * 5000,
    b'{"a":1,"a":1}',
    b'{"a":{"b":1,"b":2}}',
    b"[" * 66 + b"]" * 66,
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000,
]


@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: repr(body[:20]))
def test_what_is_not_strict_json_is_refused(body: bytes) -> None:
    """Everything but unambiguous, finite, bounded UTF-8 JSON is a 400 (F05)."""
    with pytest.raises(ApiError) as refusal:
        parse_json(body)
    assert refusal.value.type.status == 400


@pytest.mark.rule(20)
def test_a_body_is_cleaned_of_what_cannot_be_stored() -> None:
    """NUL and lone surrogates become U+FFFD, in texts and in keys (F04)."""
    body = rb'{"a\u0000": ["b\u0000", "\ud800", "\ud83d\ude00"]}'
    assert parse_json(body) == {
        "a\N{REPLACEMENT CHARACTER}": [
            "b\N{REPLACEMENT CHARACTER}",
            "\N{REPLACEMENT CHARACTER}",
            "\N{GRINNING FACE}",
        ]
    }


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_sound_json_arrives_as_it_was_sent(value: object) -> None:
    """What a client sends is what is read, to the last digit and in its order."""
    read = parse_json(json.dumps(value).encode())
    assert json.dumps(read) == json.dumps(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """No body raises anything but a refusal."""
    with suppress(ApiError):
        parse_json(body)


def test_an_id_may_be_in_capitals() -> None:
    """A canonical id is the same id in capitals (F05)."""
    assert read_id("0190AB00-0000-7000-8000-0000000000FF").int & 0xFF == 0xFF


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "\x00",
        "0190ab00-0000-7000-8000-0000000000ff ",
        "0190ab00-0000-7000-8000-0000000000ff\n",
        "{0190ab00-0000-7000-8000-0000000000ff}",
        "urn:uuid:0190ab00-0000-7000-8000-0000000000ff",
        "0190ab00000070008000000000000000",
        "0190ab00-0000-7000-8000-0000000000fg",
        "\N{ARABIC-INDIC DIGIT ZERO}190ab00-0000-7000-8000-0000000000ff",
    ],
)
def test_another_spelling_is_no_id(text: str) -> None:
    """Anything but the usual spelling names nothing (F05)."""
    with pytest.raises(NotFound):
        read_id(text)


@pytest.mark.parametrize(
    "text",
    ["0", "201", "-1", "1.0", "", " 5", "5 ", "\N{ARABIC-INDIC DIGIT FIVE}", "1_0", "9" * 400, "\x00"],
)
def test_a_limit_is_a_number_from_1_to_200(text: str) -> None:
    """Another limit is refused, naming it."""
    with pytest.raises(InvalidInput) as refusal:
        read_limit({"limit": text})
    assert refusal.value.field == "limit"


@given(st.uuids(), st.integers(min_value=0, max_value=2**63 - 1))
def test_a_cursor_comes_back_as_what_it_was(row_id: UUID, seq: int) -> None:
    """A cursor is read as the row it was made of."""
    assert read_id_cursor({"cursor": cursor_of(row_id)}) == row_id
    assert read_seq_cursor({"cursor": cursor_of(seq)}) == seq


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "\x00",
        "ü",
        "AAAA",
        "=" * 22,
        "A" * 21 + "B",
        "A" * 22 + "==",
        "A" * 23,
        "A" * 10_000,
        "-1",
    ],
)
@pytest.mark.parametrize("read", [read_id_cursor, read_seq_cursor])
def test_a_cursor_that_is_none_is_refused(read: Callable[[dict[str, str]], object], text: str) -> None:
    """A cursor that was not handed out is refused, naming it (F04)."""
    with pytest.raises(InvalidInput) as refusal:
        read({"cursor": text})
    assert refusal.value.field == "cursor"


def test_a_negative_seq_is_no_cursor() -> None:
    """A cursor cannot point before the first message."""
    with pytest.raises(InvalidInput):
        read_seq_cursor({"cursor": cursor_of(-1)})


@pytest.mark.parametrize(("rows", "more"), [(0, False), (2, False), (3, True)])
async def test_the_last_page_has_no_cursor(rows: int, more: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """A next cursor is there exactly when there is a next row."""
    keys = [NewKey(uuid4(), uuid4(), f"hgo_{number}") for number in range(rows)]
    response = await page_response(Page[NewKeyJson], Rows.of(keys, 2), lambda key: key.id)
    page = json.loads(await response.get_data())
    assert [row["id"] for row in page["data"]] == [str(key.id) for key in keys[:2]]
    assert page["next_cursor"] == (cursor_of(keys[1].id) if more else None)


@pytest.mark.parametrize(("size", "inline"), [(INLINE_BYTES, True), (INLINE_BYTES + 1, False)])
async def test_a_large_page_is_made_off_the_loop(size: int, inline: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """Rows are read, and a page is written, in a thread when they are large together (S-H4)."""
    threads: list[int] = []

    def read(row: Row) -> NewKey:
        threads.append(get_ident())
        return NewKey(row["id"], row["id"], "hgo_x")

    class Watched(NewKeyJson):  # type: ignore[explicit-any]  # pydantic's base has it
        @model_serializer(mode="wrap")
        def _watch(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
            threads.append(get_ident())
            found: dict[str, object] = write(self)
            return found

    page = await Rows.read([{"id": uuid4(), "found": 2, "bytes": size}], read)
    response = await page_response(Page[Watched], page, lambda key: key.id)
    body = json.loads(await response.get_data())
    assert body["data"] == [
        {"id": str(page.rows[0].id), "user_id": str(page.rows[0].id), "key": "hgo_x"}
    ]
    assert body["next_cursor"]
    assert [it == get_ident() for it in threads] == [inline, inline]
