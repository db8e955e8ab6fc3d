"""A database that goes away, or whose answers are lost: no run is lost, failed or done twice."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.db.pool import open_pool
from hango.domain import (
    RunState,
)
from hango.testing import FakeProvider, call, text, waiting
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql

from support.workers import (
    SETTINGS,
    TICKING,
    BlockingTool,
    HandClock,
    PausedFirstClaim,
    cut_connections,
    database_away,
    echo,
    lose_reply,
    mock_now,
    prompt,
    started_worker,
    until,
    until_idle,
)


@pytest.fixture
def clock() -> MockClock:
    """Have a clock that stands still until it is turned."""
    return MockClock()


async def test_a_run_in_the_middle_of_a_stream_survives_an_outage(world: SeededTenant) -> None:
    """D11: the database is away while the model talks; the run is finished once, by the same claim."""
    gate = trio.Event()
    provider = FakeProvider([waiting(gate, text("done"))])
    async with started_worker(world, provider) as worker:
        run = await world.run(await world.session())
        await provider.wait_for_calls(1)
        async with database_away(world.pool):
            gate.set()
            await wait_all_tasks_blocked(0.05)
        (done,) = await until(world, [run])
        assert not worker.ended.is_set()
    assert (done.state, done.claim_epoch) == (RunState.SUCCEEDED, 1)


async def test_a_claim_whose_answer_was_lost_is_made_again(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11: nobody waits for its lease to lapse: what is ours without an actor is given back."""
    async with started_worker(world, FakeProvider(echo)):
        await until_idle(world)
        PausedFirstClaim(monkeypatch, lose_reply)
        run = await world.run(await world.session())
        (done,) = await until(world, [run])
    assert (done.state, done.claim_epoch, done.reclaims) == (RunState.SUCCEEDED, 2, 0)


async def test_a_claim_whose_answer_was_lost_is_given_back_by_the_drain(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D16: also one that this process does not know of."""
    run = await world.run(await world.session())
    claim = PausedFirstClaim(monkeypatch, lose_reply)
    async with started_worker(world, FakeProvider(echo)) as worker:
        await claim.made.wait()
        worker.drain.set()
    now = await world.reload(run)
    assert (now.state, now.owner_id, now.reclaims) == (RunState.QUEUED, None, 0)


async def test_an_idle_process_survives_an_outage_without_spinning(
    database: str, clock: MockClock
) -> None:
    """D10, D11: away for ten minutes at every kind of tick; tries stay few, and then it goes on."""
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_seeded_tenant(pool), HandClock(clock, pool)
        async with started_worker(world, FakeProvider(echo), settings=TICKING) as worker:
            await time.turn(1)
            async with database_away(pool):
                before = pool.statements
                await time.turn(600)
                tries = pool.statements - before
            assert not worker.ended.is_set()
            assert tries <= 600 / TICKING.poll_interval + 600 / TICKING.reclaim_interval + 10
            run = await world.run(await world.session())
            await time.turn(10)
            assert (await world.reload(run)).state is RunState.SUCCEEDED


async def test_a_cut_in_every_connection_at_once_costs_no_run(world: SeededTenant) -> None:
    """D11: connections die while thirty runs are queued and executed; each is done exactly once."""
    provider = FakeProvider(echo)
    settings = attrs.evolve(SETTINGS, poll_interval=0.2)
    async with started_worker(world, provider, settings=settings):
        runs = [await world.run(await world.session(), f"run {n}") for n in range(30)]
        await cut_connections(world.pool)
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}
    assert len({prompt(request) for request in provider.requests}) == 30


async def test_a_permanent_actor_that_cannot_work_ends_the_process(world: SeededTenant) -> None:
    """Let it crash: with a schema that is not ours, nothing can be executed, and nobody pretends."""
    await sql(world.pool, "alter table runs rename to walks")
    with pytest.raises(ExceptionGroup):
        async with started_worker(world, FakeProvider(echo)) as worker:
            await worker.ended.wait()


@pytest.mark.rule(11)
async def test_a_cancel_rung_while_nobody_listened_is_heard_after(world: SeededTenant) -> None:
    """D10: whoever listens again asks of the runs it executes, too, and not only of new ones."""
    gate = BlockingTool()
    async with started_worker(world, FakeProvider([call("hold"), text("done")]), gate.tool):
        run = await world.run(await world.session())
        await gate.entered.wait()
        await sql(
            world.pool,
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and query like 'LISTEN%'",
        )
        await world.runs.cancel(world.scope(), run.id)
        with trio.fail_after(15):  # half of what it takes a silent line to be looked after
            assert (await until(world, [run]))[0].state is RunState.CANCELLED
