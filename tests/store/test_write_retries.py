"""How long a write is tried: as long as its lease holds, which others may move meanwhile."""

from __future__ import annotations

import pytest
import trio

from hango.errors import StoreUnavailable
from hango.store.fence import Fence
from hango.store.journal import Journal
from hango.store.lease import Lease
from hango.testing.plugin import LeaseClock, SeededTenant


@pytest.mark.rule(4)
async def test_a_write_is_tried_to_the_very_end_of_a_lease_that_is_moved_meanwhile(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """A short lease that heartbeats keep is not given up between two tries."""
    run = await world.run(await world.session())
    began = trio.current_time()
    lease = Lease.granted(run.owner_id, run.claim_epoch, ttl=3.0, asked_at=began)
    fence = Fence.of(world.pool, Journal(world.pool), run, lease)
    tries: list[float] = []

    async def away() -> None:
        tries.append(trio.current_time() - began)
        raise StoreUnavailable("away")

    async def give_up() -> None:
        with pytest.raises(StoreUnavailable):
            await fence.retry_until_deadline(away)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await lease_clock.advance(2)
        lease.renew(began + 3.0)
        await lease_clock.advance(3)
        assert nursery.child_tasks
        await lease_clock.advance(1)
    assert tries[-1] == pytest.approx(5.7)
    assert any(2.7 <= at < 5.7 for at in tries)
