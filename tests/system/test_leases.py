"""Leases under a clock that is turned: kept by heartbeats, lost in time, taken back by the sweep."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.actors.actor import Inbox, spawn
from hango.actors.leases import Leases
from hango.domain import Run, RunState, new_id
from hango.store.claims import Claim
from hango.store.queue import Renewal
from hango.telemetry import names
from hango.testing import FakeProvider, call, hanging, text, waiting
from hango.testing.plugin import LeaseClock, SeededTenant, sql

from support.counters import counted
from support.locks import row_held
from support.workers import NEVER, TICKING, BlockingTool, started_worker, until

PATIENT = attrs.evolve(TICKING, run_deadline=NEVER, tool_timeout=NEVER)


async def lease_left(world: SeededTenant, run: Run) -> float:
    """Return for how many seconds, by the database, the run's lease still holds."""
    found = await sql(
        world.pool,
        "select extract(epoch from lease_expires_at - $2)::float8 as left from runs where id = $1",
        run.id,
        world.pool.now(),
    )
    return float(found[0]["left"])


async def stand(inbox: Inbox[Claim], scopes: list[trio.CancelScope]) -> None:
    """Hold a claim until the scope of its lease ends."""
    async for claim in inbox:
        with inbox.interruptible(claim.key, claim.lease.deadline) as scope:
            scopes.append(scope)
            await trio.sleep_forever()


async def claimed(world: SeededTenant) -> Claim:
    """Claim a run."""
    session = await world.session()
    await world.run(session)
    claim = await world.queue().claim_next(session.id)
    assert claim is not None
    return claim


# --- kept -----------------------------------------------------------------------------------


@pytest.mark.rule(4)
async def test_a_heartbeat_keeps_the_lease_of_a_run_much_longer_than_it(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """Ten minutes in one tool call: one claim, never taken back, the lease never under a third."""
    gate = BlockingTool()
    provider = FakeProvider([call("hold"), text("done")])
    async with world.worker(provider, gate.tool, settings=PATIENT):
        run = await world.run(await world.session())
        await gate.entered.wait()
        for _ in range(20):
            await lease_clock.advance(30)
            assert await lease_left(world, run) > TICKING.lease_ttl / 3
        gate.open.set()
        done = await world.ended(run)
    assert (done.state, done.claim_epoch, done.reclaims) == (RunState.SUCCEEDED, 1, 0)


@pytest.mark.rule(4)
async def test_a_renewal_that_fails_is_tried_again_until_the_local_deadline(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """D11: the database is away over two heartbeats and back before the lease ends: nothing is lost."""
    gate = BlockingTool()
    provider = FakeProvider([call("hold"), text("done")])
    async with world.worker(provider, gate.tool, settings=PATIENT) as worker:
        run = await world.run(await world.session())
        await gate.entered.wait()
        async with worker.cut_off():
            await lease_clock.advance(75)
        await lease_clock.advance(5)
        assert await lease_left(world, run) > TICKING.lease_ttl - 10
        await lease_clock.advance(60)
        gate.open.set()
        done = await world.ended(run)
    assert (done.state, done.claim_epoch, gate.calls) == (RunState.SUCCEEDED, 1, 1)


@pytest.mark.rule(4)
async def test_a_row_locked_by_someone_else_is_renewed_soon_after(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """Skipped is neither lost nor renewed; it is not left alone for a whole interval."""
    gate = BlockingTool()
    provider = FakeProvider([call("hold"), text("done")])
    async with world.worker(provider, gate.tool, settings=PATIENT):
        run = await world.run(await world.session())
        await gate.entered.wait()
        async with row_held(world.pool, "runs", run.id):
            await lease_clock.advance(31)
        await lease_clock.advance(3)
        assert await lease_left(world, run) > TICKING.lease_ttl - 4
        gate.open.set()
        done = await world.ended(run)
    assert done.claim_epoch == 1


# --- lost -----------------------------------------------------------------------------------


@pytest.mark.rule(4)
async def test_a_process_cut_off_stops_itself_before_anyone_may_reclaim(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """D03: at nine tenths of the lease the tool is cut off, nothing is written, the sweep counts."""
    gate, reclaimed = BlockingTool(), counted(names.RUN_RECLAIMED, outcome="queued")
    provider = FakeProvider([call("hold"), text("done")])
    async with world.worker(provider, gate.tool, settings=PATIENT) as worker:
        run = await world.run(await world.session())
        await gate.entered.wait()
        async with worker.cut_off():
            await lease_clock.advance(80)
            assert gate.left == 0
            await lease_clock.advance(2)
            assert gate.left == 1
        now = await world.reload(run)
        assert (now.state, now.claim_epoch) == (RunState.RUNNING, 1)
        assert await lease_left(world, run) > 0, "it must have stopped while the lease still held"
        gate.open.set()
        await lease_clock.advance(60)
        done = await world.ended(run)
    assert (done.state, done.claim_epoch) == (RunState.SUCCEEDED, 2)
    assert counted(names.RUN_RECLAIMED, outcome="queued") == reclaimed + 1
    assert (provider.calls, gate.calls) == (2, 2), "a paid answer was bought twice"


@pytest.mark.rule(3)
@pytest.mark.rule(4)
async def test_a_heartbeat_that_reports_the_run_missing_is_loss_at_once(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """D03: stolen in the middle of a stream: the call is closed at the beat, and nothing is written."""
    provider = FakeProvider([hanging(text("half an"))])
    async with world.worker(provider, settings=PATIENT):
        session = await world.session()
        run = await world.run(session)
        await provider.wait_for_calls(1)
        await sql(
            world.pool,
            "update runs set owner_id = $1, claim_epoch = 7, lease_expires_at = $2",
            new_id(),
            lease_clock.now().replace(year=2100),
        )
        assert provider.closed == 0
        await lease_clock.advance(31)
        assert provider.closed == 1
        now = await world.reload(run)
        assert (now.state, now.claim_epoch) == (RunState.RUNNING, 7)
        assert await world.sessions.messages(world.scope(), session.id) == []


async def test_an_answer_that_comes_after_the_deadline_gives_no_authority_back(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """A deadline that has passed stays passed, although the database did renew the lease."""
    claim, leases, scopes = await claimed(world), Leases(), list[trio.CancelScope]()
    passed = trio.current_time() - 1
    claim.lease.cap(passed)
    executor = spawn(nursery, stand, scopes, name="stand", inbox_size=1)
    executor.tell(claim)
    leases.add(claim, executor)
    await wait_all_tasks_blocked()
    leases.apply(Renewal(trio.current_time(), frozenset({claim.key}), frozenset(), frozenset()))
    assert claim.lease.deadline == scopes[0].deadline == passed
    assert leases.renewable() == []


async def test_once_told_to_stop_no_renewal_gives_more_time(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """D16: what is written at the end of a drain is bounded, whatever the heartbeat brings."""
    claim, leases, scopes = await claimed(world), Leases(), list[trio.CancelScope]()
    executor = spawn(nursery, stand, scopes, name="stand", inbox_size=1)
    executor.tell(claim)
    leases.add(claim, executor)
    await wait_all_tasks_blocked()
    leases.stop(within=5)
    leases.apply(Renewal(trio.current_time(), frozenset({claim.key}), frozenset(), frozenset()))
    assert claim.lease.deadline <= trio.current_time() + 5
    assert scopes[0].cancel_called


# --- cancel ---------------------------------------------------------------------------------


@pytest.mark.rule(11)
async def test_a_cancel_rings_through_to_the_stream_and_keeps_what_had_arrived(
    world: SeededTenant,
) -> None:
    """D09 b, f: no tick is waited for; the partial answer is stored by the settle."""
    provider = FakeProvider([hanging(text("half an answer"))])
    async with started_worker(world, provider):
        session = await world.session()
        run = await world.run(session)
        await provider.wait_for_calls(1)
        await world.runs.cancel(world.scope(), run.id)
        done = await world.ended(run)
    messages = await world.sessions.messages(world.scope(), session.id)
    assert done.state is RunState.CANCELLED
    assert [(m.role, m.partial) for m in messages] == [("user", False), ("assistant", True)]
    assert done.final_message_id == messages[-1].id
    assert provider.closed == 1


@pytest.mark.rule(11)
async def test_a_cancel_whose_doorbell_was_lost_is_seen_by_the_heartbeat(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """A beat reports cancels every time."""
    provider = FakeProvider([hanging()])
    async with world.worker(provider, settings=PATIENT):
        run = await world.run(await world.session())
        await provider.wait_for_calls(1)
        await sql(world.pool, "update runs set cancel_requested_at = $1", lease_clock.now())
        await lease_clock.advance(31)
        assert (await world.reload(run)).state is RunState.CANCELLED


@pytest.mark.rule(11)
async def test_a_cancel_of_a_waiting_run_leaves_the_line_intact(world: SeededTenant) -> None:
    """D09 a, g: it is terminal at once, never sent to a provider, and the one behind it runs."""
    gate, session = trio.Event(), await world.session()
    provider = FakeProvider([waiting(gate, text("first")), text("third")])
    async with started_worker(world, provider):
        first, second, third = [await world.run(session, f"run {n}") for n in range(3)]
        await provider.wait_for_calls(1)
        assert (await world.runs.cancel(world.scope(), second.id)).state is RunState.CANCELLED
        gate.set()
        done = await until(world, [first, third])
    assert {run.state for run in done} == {RunState.SUCCEEDED}
    assert provider.calls == 2


@pytest.mark.rule(11)
async def test_a_cancel_after_the_end_changes_nothing(world: SeededTenant) -> None:
    """D09 c, d, e: what had committed first stays, however often one cancels."""
    async with started_worker(world, FakeProvider([text("done")])):
        run = await world.run(await world.session())
        done = await world.ended(run)
        for _ in range(2):
            assert await world.runs.cancel(world.scope(), run.id) == done


# --- taken back -----------------------------------------------------------------------------


@pytest.mark.rule(5)
async def test_a_run_left_by_a_dead_process_is_taken_back_at_start(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """D01: the first sweep comes at once, and its doorbell or a look gets the run executed."""
    run = await world.run(session := await world.session())
    assert await world.queue().claim_next(session.id)
    await lease_clock.advance(91)
    async with world.worker(FakeProvider([text("done")]), settings=PATIENT):
        done = await world.ended(run)
    assert (done.state, done.claim_epoch) == (RunState.SUCCEEDED, 2)


@pytest.mark.rule(5)
async def test_a_lease_that_lapses_later_is_taken_back_within_the_interval(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """D01: not before it has lapsed, and at most one sweep's interval after."""
    run = await world.run(session := await world.session())
    assert await world.queue().claim_next(session.id)
    provider = FakeProvider([text("done")])
    async with world.worker(provider, settings=PATIENT):
        await lease_clock.advance(89)
        assert provider.calls == 0
        await lease_clock.advance(1 + 30)
        assert provider.calls == 1
    assert (await world.reload(run)).state is RunState.SUCCEEDED


@pytest.mark.rule(5)
async def test_the_sweep_survives_an_outage(world: SeededTenant, lease_clock: LeaseClock) -> None:
    """D11: away at the very moment of the sweep, it comes again with the next interval."""
    run = await world.run(session := await world.session())
    assert await world.queue().claim_next(session.id)
    async with world.worker(FakeProvider([text("done")]), settings=PATIENT) as worker:
        await lease_clock.advance(85)
        async with worker.cut_off():
            await lease_clock.advance(100)
        await lease_clock.advance(31)
        assert not worker.ended.is_set()
    assert (await world.reload(run)).state is RunState.SUCCEEDED
