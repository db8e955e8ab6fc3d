"""The delay before a retry: bounded whatever the provider, the clock or the dice say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.agent.model_call import MAX_DELAY, MAX_RETRY_AFTER, retry_delay

dice = st.floats(0, 1)


@pytest.mark.rule(16)
@given(st.integers(1, 10**6), st.none() | st.floats(), st.floats(allow_nan=False), dice)
def test_a_delay_is_always_between_nothing_and_the_bounds(
    failures: int, retry_after: float | None, remaining: float, jitter: float
) -> None:
    """A15: no header makes hango sleep for years, hammer, or overflow; no wait passes the deadline."""
    delay = retry_delay(failures, retry_after, remaining, jitter)
    assert 0 <= delay <= MAX_RETRY_AFTER
    assert delay <= max(remaining, 0)


@pytest.mark.rule(16)
@pytest.mark.parametrize(
    "nonsense", [None, 0.0, -5.0, math.nan, math.inf, -math.inf, 1771404540.0, 9999999999.0]
)
def test_nonsense_counts_as_not_asked(nonsense: float | None) -> None:
    """A15: points in time, negative numbers and zero mean the own backoff, which is never zero."""
    assert retry_delay(1, nonsense, math.inf, 0.5) == retry_delay(1, None, math.inf, 0.5) > 0


@pytest.mark.rule(16)
@pytest.mark.parametrize(("asked", "delay"), [(0.5, 0.5), (59.0, 59.0), (60.0, 60.0), (3600.0, 60.0)])
def test_a_wait_that_was_asked_for_is_kept_within_the_bound(asked: float, delay: float) -> None:
    """A15: the provider knows better than our backoff."""
    assert retry_delay(3, asked, math.inf, 1.0) == delay


@pytest.mark.rule(16)
def test_the_own_backoff_doubles_up_to_its_bound() -> None:
    """Without a wish of the provider, each wait is longer than the last."""
    delays = [retry_delay(failures, None, math.inf, 0.0) for failures in range(1, 7)]
    assert delays == [0.5, 1.0, 2.0, 4.0, MAX_DELAY, MAX_DELAY]


@given(dice)
def test_the_dice_spread_the_waits(jitter: float) -> None:
    """Many runs that failed together do not come back together: up to a quarter less."""
    assert 0.75 <= retry_delay(2, None, math.inf, jitter) <= 1.0
