"""A cancel is dated by the clock that dates all else about runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hango.testing.clock import EPOCH
from hango.testing.plugin import LeaseClock, SeededTenant


@pytest.mark.rule(11)
async def test_a_cancel_is_dated_by_the_clock_of_the_leases(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """So that a run that is cancelled in line has not ended after the one behind it began."""
    run = await world.run(await world.session())
    await lease_clock.advance(5)
    cancelled = await world.runs.cancel(world.scope(), run.id)
    assert cancelled.finished_at == cancelled.cancel_requested_at == EPOCH + timedelta(seconds=5)
