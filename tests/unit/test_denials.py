"""How often refusals are recorded."""

from __future__ import annotations

from trio.testing import MockClock

from hango.web.denials import Throttle


async def test_each_key_passes_once_in_an_interval(mock_clock: MockClock) -> None:
    """What is held back is counted, and told when the next one passes (S-L3)."""
    throttle = Throttle(60.0)
    assert [throttle.take("a"), throttle.take("b")] == [0, 0]
    assert [throttle.take("a"), throttle.take("a")] == [None, None]
    mock_clock.jump(59.0)
    assert throttle.take("a") is None
    mock_clock.jump(1.0)
    assert [throttle.take("a"), throttle.take("b"), throttle.take("a")] == [3, 0, None]


async def test_not_all_keys_are_remembered_for_ever(mock_clock: MockClock) -> None:
    """A flood of keys takes a bounded memory; those that came last are held back."""
    throttle = Throttle(60.0)
    for key in range(5000):
        assert throttle.take(key) == 0
    mock_clock.jump(1.0)
    assert len(throttle._last) == 1000
    assert throttle.take(4999) is None
