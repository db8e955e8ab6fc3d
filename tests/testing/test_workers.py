"""A worker in a test begins and ends as a process does."""

from __future__ import annotations

import pytest

from hango.domain import RunState
from hango.testing import FakeProvider, call, hanging, text
from hango.testing.plugin import LeaseClock, SeededTenant, sql

from support.workers import BlockingTool


async def test_drained_it_hands_over_what_it_did_not_finish(
    hango_world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """The end of its block is a drain: the run is queued again, and nothing is counted against it."""
    async with hango_world.worker(FakeProvider([hanging()])):
        run = await hango_world.run(await hango_world.session())
        await lease_clock.settle()
    left = await hango_world.reload(run)
    assert (left.state, left.owner_id, left.reclaims) == (RunState.QUEUED, None, 0)
    assert lease_clock.current_time() == 120, "a drain waits for running turns"


async def test_a_test_that_fails_tears_it_down_at_once(
    hango_world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """No drain is waited for, the lease is ended all the same, and the error comes through."""
    with pytest.RaisesGroup(ZeroDivisionError):
        async with hango_world.worker(FakeProvider([hanging()])):
            run = await hango_world.run(await hango_world.session())
            await lease_clock.settle()
            raise ZeroDivisionError
    assert await hango_world.queue().sweep() == 1
    assert (await hango_world.reload(run)).state is RunState.QUEUED
    assert lease_clock.current_time() == 0


async def test_killed_it_writes_nothing_more(
    hango_world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """Neither a partial answer nor a release: the row is as it was at the kill."""
    async with hango_world.worker(FakeProvider([hanging(text("half"))])) as worker:
        session = await hango_world.session()
        run = await hango_world.run(session)
        await lease_clock.settle()
        before = await hango_world.reload(run)
        await worker.kill()
        await lease_clock.advance(300)
        assert worker.ended.is_set()
    assert await hango_world.reload(run) == before
    assert before.state is RunState.RUNNING
    assert await hango_world.sessions.messages(hango_world.scope(), session.id) == []


async def test_killed_it_is_dead_before_its_runs_know(
    hango_world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """Also with every connection open and at leisure, a run that is cut off is not given back."""
    script = [text("warm")] * 20
    async with hango_world.worker(FakeProvider([*script, hanging()])) as worker:
        for _ in script:
            await hango_world.ended(await hango_world.run(await hango_world.session()))
        run = await hango_world.run(await hango_world.session())
        await lease_clock.settle()
        await worker.kill()
    assert (await hango_world.reload(run)).state is RunState.RUNNING


async def test_killed_while_cut_off_it_stays_dead(
    hango_world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """The database that comes back does not hear from it."""
    async with hango_world.worker(FakeProvider([hanging()])) as worker:
        run = await hango_world.run(await hango_world.session())
        await lease_clock.settle()
        async with worker.cut_off():
            await worker.kill()
        await lease_clock.advance(10)
    assert (await hango_world.reload(run)).state is RunState.RUNNING


async def test_cut_off_it_has_no_connection_and_the_others_keep_theirs(
    hango_world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """It is this process that is alone, not the database."""
    gate = BlockingTool()
    provider = FakeProvider([call("hold"), text("done")])
    async with (
        hango_world.worker(provider, gate.tool) as one,
        hango_world.worker(FakeProvider([])) as other,
    ):
        await lease_clock.settle()
        names = [worker.pool.connector.settings["application_name"] for worker in (one, other)]
        async with one.cut_off():
            await lease_clock.advance(20)
            connected = await sql(hango_world.pool, "select application_name from pg_stat_activity")
            found = {row["application_name"] for row in connected}
            assert found & {*names} == {names[1]}
        await lease_clock.advance(20)
        connected = await sql(hango_world.pool, "select application_name from pg_stat_activity")
        assert {row["application_name"] for row in connected} >= {*names}
