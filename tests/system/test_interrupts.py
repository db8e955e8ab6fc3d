"""Executions that are cut short, or that lose their authority: what is written, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.actors.session import RELEASE_GRACE
from hango.domain import (
    Message,
    OutcomeStatus,
    Run,
    RunOutcome,
    RunState,
    Usage,
)
from hango.store.claims import Claim
from hango.store.queue import Renewal
from hango.telemetry import names
from hango.testing import FakeProvider, call, text
from hango.testing.plugin import SeededTenant, sql

from support.counters import counted
from support.locks import row_held, until_waiting
from support.session_bench import builder_for, make_session_bench
from support.workers import BlockingTool


async def steal(world: SeededTenant, run: Run) -> None:
    """Let another process own the run."""
    await sql(world.pool, "update runs set claim_epoch = claim_epoch + 1 where id = $1", run.id)


@pytest.mark.rule(11)
async def test_a_cancel_known_before_the_execution_begins_is_not_lost(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """D09 b: flagged between claim and execution, it ends the run without a provider call."""
    provider = FakeProvider([text("never")])
    on = await make_session_bench(world, nursery, builder_for(provider))
    claim = await on.claim()
    await world.runs.cancel(world.scope(), claim.run.id)
    claim.cancelled = True
    await on.tell(claim).wait()
    assert (await world.reload(claim.run)).state is RunState.CANCELLED
    assert provider.calls == 0


async def test_what_is_told_after_the_drains_time_is_up_is_released_at_once(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """D16: no execution begins any more."""
    provider = FakeProvider([text("never")])
    on = await make_session_bench(world, nursery, builder_for(provider))
    claim = await on.claim()
    on.leases.stop(within=5)
    await on.tell(claim).wait()
    now = await world.reload(claim.run)
    assert (now.state, now.owner_id, provider.calls) == (RunState.QUEUED, None, 0)


@pytest.mark.rule(3)
async def test_a_claim_already_lost_is_not_executed(world: SeededTenant, nursery: trio.Nursery) -> None:
    """D03: nothing is asked of the provider, and nothing is written."""
    provider = FakeProvider([text("never")])
    on = await make_session_bench(world, nursery, builder_for(provider))
    claim = await on.claim()
    claim.lease.lose()
    await on.tell(claim).wait()
    assert (await world.reload(claim.run)).state is RunState.RUNNING
    assert provider.calls == 0


@pytest.mark.rule(3)
async def test_an_outcome_reached_without_authority_is_not_written(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """D03: the answer was complete, but the lease was reported lost in the same moment."""

    async def prepare(claim: Claim, _: Sequence[Message]) -> RunOutcome:
        claim.lease.lose()
        return RunOutcome(OutcomeStatus.DONE, iterations=1, usage=Usage())

    run = await (await make_session_bench(world, nursery, prepare)).execute()
    assert run.state is RunState.RUNNING


@pytest.mark.rule(3)
async def test_a_run_stolen_in_the_middle_of_a_turn_is_left_to_its_new_owner(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """The boundary meets the fence: it is counted, and the execution ends without another write."""
    gate, rejected = BlockingTool(), counted(names.FENCE_REJECTED)
    provider = FakeProvider([call("hold"), text("never")])
    on = await make_session_bench(world, nursery, builder_for(provider, gate))
    claim = await on.claim()
    over = on.tell(claim)
    await gate.entered.wait()
    await steal(world, claim.run)
    gate.open.set()
    await over.wait()
    now = await world.reload(claim.run)
    assert (now.state, now.resume_turn, now.claim_epoch) == (RunState.RUNNING, 0, 2)
    assert counted(names.FENCE_REJECTED) == rejected + 1
    assert provider.calls == 1


async def test_an_error_raised_while_being_interrupted_is_still_an_interrupt(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """D19: a cancel is never recorded as a failure, whatever cleaning up raises."""
    entered = trio.Event()

    async def prepare(_: Claim, __: Sequence[Message]) -> RunOutcome:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            try:
                entered.set()
                await trio.sleep_forever()
            finally:
                raise ValueError("cleaning up failed")
        raise AssertionError

    on = await make_session_bench(world, nursery, prepare)
    claim = await on.claim()
    over = on.tell(claim)
    await entered.wait()
    await world.runs.cancel(world.scope(), claim.run.id)
    claim.cancelled = True
    assert on.address.interrupt(claim.key)
    await over.wait()
    assert (await world.reload(claim.run)).state is RunState.CANCELLED


async def test_the_settle_is_not_cut_by_a_cancellation(world: SeededTenant) -> None:
    """D17: the actor is torn down exactly while the end is written; it is written all the same."""
    async with trio.open_nursery() as nursery:
        on = await make_session_bench(world, nursery, builder_for(FakeProvider([text("hi")])))
        claim = await on.claim()
        lock = AsyncExitStack()
        await lock.enter_async_context(row_held(world.pool, "sessions", on.session.id))
        over = on.tell(claim)
        await until_waiting(world.pool)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert not over.is_set()
            await lock.aclose()
    assert (await world.reload(claim.run)).state is RunState.SUCCEEDED
    assert on.settled == 1


async def test_once_torn_down_no_renewal_gives_more_time(world: SeededTenant) -> None:
    """D17: what is still written then is bounded, whatever a heartbeat brings that was on its way."""
    gate = BlockingTool()
    async with trio.open_nursery() as nursery:
        on = await make_session_bench(world, nursery, builder_for(FakeProvider([call("hold")]), gate))
        claim = await on.claim()
        on.tell(claim)
        await gate.entered.wait()
        with trio.CancelScope(shield=True):
            async with row_held(world.pool, "runs", claim.run.id):
                nursery.cancel_scope.cancel()
                await until_waiting(world.pool)
                renewed = frozenset({claim.key})
                on.leases.apply(Renewal(trio.current_time(), renewed, frozenset(), frozenset()))
                assert claim.lease.deadline <= trio.current_time() + RELEASE_GRACE
    assert await world.queue().sweep() == 1


@pytest.mark.rule(5)
async def test_a_run_whose_actor_is_torn_down_is_taken_back_at_once_and_counted(
    world: SeededTenant,
) -> None:
    """R-F1: only an error ends a process like that, so it counts; the slot is freed all the same."""
    gate = BlockingTool()
    async with trio.open_nursery() as nursery:
        on = await make_session_bench(world, nursery, builder_for(FakeProvider([call("hold")]), gate))
        claim = await on.claim()
        on.tell(claim)
        await gate.entered.wait()
        nursery.cancel_scope.cancel()
    assert await world.queue().sweep() == 1
    run = await world.reload(claim.run)
    assert (run.state, run.reclaims) == (RunState.QUEUED, 1)
    assert (on.settled, on.leases.renewable()) == (1, [])
