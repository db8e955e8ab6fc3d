"""How long a provider asked to wait: a wait that can be slept, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.providers.failures import MAX_RETRY_AFTER, read_retry_after

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0.5", 0.5),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("7.", 7.0),
        ("119.9", 119.9),
        ("1771404540", MAX_RETRY_AFTER),
        ("9999999999", MAX_RETRY_AFTER),
        ("9" * 400, MAX_RETRY_AFTER),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30.0),
        ("Mon, 30 Nov 2026 12:00:30 -0000", 30.0),
        ("Mon, 30 Nov 2026 13:00:30 +0100", 30.0),
        ("Tue, 30 Nov 2038 12:00:00 GMT", MAX_RETRY_AFTER),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ("0", None),
        ("0.0", None),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("0x10", None),
        ("١٢", None),
        ("30, 60", None),
        ("Mon, 99 Nov 2026 99:99:99 GMT", None),
        ("Mon, 30 Nov 99999999999 12:00:00 GMT", None),
    ],
)
@pytest.mark.rule(16)
def test_a_wish_is_bounded_or_ignored(header: str, seconds: float | None) -> None:
    """A15: no header makes hango hammer, sleep for years or fail."""
    assert read_retry_after({"retry-after": header}, NOW) == seconds


def test_milliseconds_win() -> None:
    """The finer header wins, unless it cannot be read."""
    assert read_retry_after({"retry-after-ms": "250", "retry-after": "9"}, NOW) == 0.25
    assert read_retry_after({"retry-after-ms": "soon", "retry-after": "9"}, NOW) == 9.0


def test_no_header_is_no_wish() -> None:
    """A15: without a header the caller backs off in its own way."""
    assert read_retry_after({}, NOW) is None


@given(st.text(max_size=40))
def test_any_text_is_bounded_or_ignored(header: str) -> None:
    """A15: whatever stands in the header."""
    seconds = read_retry_after({"retry-after": header}, NOW)
    assert seconds is None or 0 < seconds <= MAX_RETRY_AFTER
