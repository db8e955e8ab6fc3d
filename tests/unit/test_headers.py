"""The headers by which a client steers: a key for a retry, a wish to wait, a trace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import Headers

from hango.errors import InvalidInput
from hango.web.wire import MAX_WAIT, read_idempotency_key, read_trace, read_wait


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ([], None),
        ([""], None),
        (["wait=10"], 10),
        (["WAIT=10"], 10),
        (["wait = 10"], 10),
        ([' wait="10" '], 10),
        (["wait=10; a=b"], 10),
        (["wait=10;a"], 10),
        (["respond-async, wait=10"], 10),
        (["respond-async", "wait=10"], 10),
        (['a="x, wait=5", wait=10'], 10),
        (["wait=10, wait=20"], 10),
        (["wait=no, wait=20"], None),
        (["wait=0"], 0),
        (["wait=60"], 60),
        (["wait=61"], MAX_WAIT),
        (["wait=999999999999999999"], MAX_WAIT),
        (["wait=9999999999999999999999"], None),
        (["wait=-1"], None),
        (["wait=1.5"], None),
        (["wait=1e1"], None),
        (["wait=\u0661"], None),
        (['wait="10'], None),
        (["wait"], None),
        (["waits=10"], None),
        (["await=10"], None),
        (["=10"], None),
        ([",;=,"], None),
        (["wait;x=10"], None),
        (["wait=\t10\t;"], 10),
        (["wait 5=10"], None),
        # read in one pass, and not at all beyond a bound (S-H3)
        (["wait=10, a=y" + " " * 900 + "x"], 10),
        (["wait=10", "a=y" + " " * 60_000 + "x"], None),
        (["wait=10" + ", a" * 400], None),
    ],
)
def test_a_wish_to_wait_is_read_as_its_standard_says(values: list[str], seconds: int | None) -> None:
    """The first wait of all preferences counts, at most a minute; what is none is ignored."""
    assert read_wait(Headers([("Prefer", value) for value in values])) == seconds


@given(st.lists(st.text(st.characters(exclude_characters="\r\n"))))
def test_no_preference_is_an_error(values: list[str]) -> None:
    """Whatever is preferred, the answer is a number of seconds or None."""
    seconds = read_wait(Headers([("Prefer", value) for value in values]))
    assert seconds is None or 0 <= seconds <= MAX_WAIT


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_a_key_is_taken_as_it_is(key: str) -> None:
    """A key is compared, never read."""
    assert read_idempotency_key(Headers([("idempotency-key", key)])) == key


@pytest.mark.parametrize("values", [[""], ["\x7f"], ["a\x00"], ["é"], ["a" * 256], ["a", "a"]])
def test_a_key_that_is_none_is_refused(values: list[str]) -> None:
    """Another key is refused by its name; none at all is fine."""
    with pytest.raises(InvalidInput) as refused:
        read_idempotency_key(Headers([("Idempotency-Key", value) for value in values]))
    assert refused.value.field == "Idempotency-Key"
    assert read_idempotency_key(Headers()) is None


@pytest.mark.parametrize("text", ["", "00", "00-" + "A" * 32 + "-" + "1" * 16 + "-01"])
def test_a_trace_that_is_none_is_ignored(text: str) -> None:
    """Only a sound trace context is remembered."""
    assert read_trace(Headers([("traceparent", text)])) is None
