"""How a process ends: at turn boundaries while there is time, and never by losing a run."""

from __future__ import annotations

from contextlib import AsyncExitStack

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.db.pool import open_pool
from hango.domain import (
    RunState,
)
from hango.testing import FakeProvider, call, hanging, text
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql

from support.locks import row_held, until_waiting
from support.workers import (
    NEVER,
    SETTINGS,
    TICKING,
    BlockingTool,
    HandClock,
    PausedFirstClaim,
    echo,
    mock_now,
    started_worker,
    until,
    until_idle,
)


@pytest.fixture
def clock() -> MockClock:
    """Have a clock that stands still until it is turned."""
    return MockClock()


async def test_an_idle_process_drains_at_once(world: SeededTenant) -> None:
    """Also with idle session actors: nothing is waited for."""
    async with started_worker(world, FakeProvider(echo)) as worker:
        run = await world.run(await world.session())
        await until(world, [run])
        worker.drain.set()
        with trio.fail_after(20):
            await worker.ended.wait()


async def test_a_running_turn_finishes_and_its_run_is_handed_to_a_peer(world: SeededTenant) -> None:
    """D16: released at the boundary, counted as nothing, and gone on with from there by another."""
    gate = BlockingTool()
    provider = FakeProvider([call("hold"), text("done")])
    async with started_worker(world, provider, gate.tool) as old:
        run = await world.run(await world.session())
        await gate.entered.wait()
        async with started_worker(world, provider, gate.tool):
            old.drain.set()
            gate.open.set()
            await old.ended.wait()
            (done,) = await until(world, [run])
    assert done.state is RunState.SUCCEEDED
    assert (done.iterations, done.claim_epoch, done.reclaims) == (2, 2, 0)
    assert (gate.calls, provider.calls) == (1, 2), "a finished turn was repeated"


async def test_what_is_not_finished_in_time_is_interrupted_and_released(
    database: str, clock: MockClock
) -> None:
    """D16: a tool that never ends costs the drain timeout and no more; the run is whole for a peer."""
    async with open_pool(database, now=mock_now) as pool:
        world, time, gate = await make_seeded_tenant(pool), HandClock(clock, pool), BlockingTool()
        settings = attrs.evolve(TICKING, tool_timeout=NEVER)
        async with started_worker(
            world, FakeProvider([call("hold")]), gate.tool, settings=settings
        ) as worker:
            run = await world.run(await world.session())
            await gate.entered.wait()
            worker.drain.set()
            await time.turn(TICKING.drain_timeout - 1)
            assert not worker.ended.is_set()
            await time.turn(2)
            assert worker.ended.is_set()
        now = await world.reload(run)
        assert (now.state, now.owner_id, now.resume_turn) == (RunState.QUEUED, None, 0)
        assert now.reclaims == 0
        assert gate.left == 1


async def test_a_claim_that_comes_back_after_drain_began_is_given_back_at_once(
    world: SeededTenant,
) -> None:
    """D16: a claim in flight when the signal comes executes nothing."""
    provider = FakeProvider(echo)
    run = await world.run(await world.session())
    lock = AsyncExitStack()
    await lock.enter_async_context(row_held(world.pool, "runs", run.id))
    async with started_worker(world, provider) as worker:
        await until_waiting(world.pool)
        worker.drain.set()
        await lock.aclose()
    now = await world.reload(run)
    assert (now.state, now.owner_id, now.claim_epoch) == (RunState.QUEUED, None, 1)
    assert now.reclaims == 0
    assert provider.calls == 0


async def test_nothing_is_claimed_once_drain_began(world: SeededTenant) -> None:
    """A run posted while a last turn is being finished is left to others."""
    gate = BlockingTool()
    async with started_worker(world, FakeProvider([call("hold")]), gate.tool) as worker:
        busy = await world.run(await world.session())
        await gate.entered.wait()
        worker.drain.set()
        late = await world.run(await world.session())
        gate.open.set()
        await worker.ended.wait()
    assert (await world.reload(late)).claim_epoch == 0
    assert (await world.reload(busy)).state is RunState.QUEUED


@pytest.mark.rule(11)
async def test_a_cancel_between_a_claim_and_its_answer_is_seen(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D09 b: its doorbell rang before anybody knew who executes the run; no heartbeat is waited for."""
    provider = FakeProvider([hanging()])
    async with started_worker(world, provider):
        await until_idle(world)

        async def cancel() -> None:
            await world.runs.cancel(world.scope(), (await world.runs.list(world.scope()))[0].id)
            await wait_all_tasks_blocked(0.05)  # until the doorbell has been heard

        PausedFirstClaim(monkeypatch, cancel)
        run = await world.run(await world.session())
        (done,) = await until(world, [run])
    assert done.state is RunState.CANCELLED


@pytest.mark.rule(11)
async def test_cancel_and_drain_is_cancelled(world: SeededTenant) -> None:
    """The row says which of the two ends the run."""
    gate = BlockingTool()
    settings = attrs.evolve(SETTINGS, drain_timeout=0.0)
    async with started_worker(
        world, FakeProvider([call("hold")]), gate.tool, settings=settings
    ) as worker:
        run = await world.run(await world.session())
        await gate.entered.wait()
        await sql(world.pool, "update runs set cancel_requested_at = now()")
        worker.drain.set()
        await worker.ended.wait()
    assert (await world.reload(run)).state is RunState.CANCELLED


async def test_a_process_torn_down_ends_its_leases(world: SeededTenant) -> None:
    """D17, R-F1: by a shielded write; the next sweep takes the runs back, and counts them."""
    gate = BlockingTool()
    async with started_worker(world, FakeProvider([call("hold")]), gate.tool) as worker:
        run = await world.run(await world.session())
        await gate.entered.wait()
        worker.scope.cancel()
        await worker.ended.wait()
    assert await world.queue().sweep() == 1
    now = await world.reload(run)
    assert (now.state, now.owner_id, now.reclaims) == (RunState.QUEUED, None, 1)


@pytest.mark.rule(6)
async def test_a_claim_that_comes_back_to_a_process_torn_down_is_released(world: SeededTenant) -> None:
    """Nobody waits a whole lease for a run that nobody has begun."""
    run = await world.run(await world.session())
    async with AsyncExitStack() as lock:
        await lock.enter_async_context(row_held(world.pool, "runs", run.id))
        async with started_worker(world, FakeProvider(echo)) as worker:
            await until_waiting(world.pool)
            worker.scope.cancel()
            await lock.aclose()
            await worker.ended.wait()
    assert (await world.reload(run)).state is RunState.QUEUED


@pytest.mark.rule(6)
async def test_a_claim_given_back_in_a_drain_is_given_back_though_the_process_is_torn_down(
    world: SeededTenant,
) -> None:
    """D17: it is a write for the row's sake, and shielded."""
    run = await world.run(await world.session())
    async with AsyncExitStack() as lock:
        await lock.enter_async_context(row_held(world.pool, "runs", run.id))
        async with started_worker(world, FakeProvider(echo)) as worker:
            await until_waiting(world.pool)
            worker.drain.set()
            worker.scope.cancel()
            await lock.aclose()
            await worker.ended.wait()
    assert (await world.reload(run)).state is RunState.QUEUED
