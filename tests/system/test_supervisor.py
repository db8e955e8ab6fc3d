"""What a process claims, in which order, and how it ends; several processes meet only in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.domain import (
    Block,
    Effects,
    ErrorCode,
    ProviderRequest,
    Run,
    RunState,
    TextBlock,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from hango.errors import StoreUnavailable
from hango.store.pool import Pool, open_pool
from hango.store.queries import Query
from hango.store.rows import Row
from hango.telemetry import names
from hango.testing import Answer, FakeProvider, call, failing, hanging, text, waiting
from hango.tools import tool

from support.counters import counted
from support.locks import row_held, until_waiting
from support.workers import (
    NEVER,
    SETTINGS,
    TICKING,
    Gate,
    Recorder,
    Time,
    away,
    cut,
    mock_now,
    until,
    working,
)
from support.world import World, make_world, sql


def prompt(request: ProviderRequest) -> str:
    """Return the newest text of the user."""
    texts = [
        block.text
        for message in request.messages
        if message.role == "user"
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    return texts[-1]


def echo(request: ProviderRequest) -> Block:
    """Answer at once."""
    return text(f"heard {prompt(request)}")


def one_after_another(runs: Sequence[Run]) -> bool:
    """Tell whether each of *runs* had ended before the next began."""
    return all(
        earlier.finished_at is not None
        and later.started_at is not None
        and earlier.finished_at <= later.started_at
        for earlier, later in pairwise(runs)
    )


async def quiet(world: World) -> None:
    """Return when nothing goes on: no statement is under way, and all tasks wait."""
    await wait_all_tasks_blocked(0.02)
    while world.pool.in_flight:
        await wait_all_tasks_blocked(0.02)


class LostClaim:
    """Lets the next claim commit, and loses its answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write, self.lost = Pool.write, trio.Event()

        async def lose(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
            rows = await write(pool, query, **values)  # type: ignore[arg-type]  # handed through
            if query.name == "claim_next_run" and not self.lost.is_set():
                self.lost.set()
                raise StoreUnavailable("the answer was lost")
            return rows

        monkeypatch.setattr(Pool, "write", lose)


@pytest.fixture
def clock() -> MockClock:
    """Have a clock that stands still until it is turned."""
    return MockClock()


# --- doorbells, looks and polls -------------------------------------------------------------


@pytest.mark.rule(6)
async def test_the_doorbell_alone_gets_a_run_executed(world: World) -> None:
    """No poll, heartbeat or sweep comes within the test, and the run is done all the same."""
    async with working(world, FakeProvider(echo)):
        run = await world.run(await world.session(), "hello")
        (done,) = await until(world, [run])
    assert done.state is RunState.SUCCEEDED
    assert done.iterations == 1


@pytest.mark.rule(6)
async def test_a_process_looks_when_it_starts(world: World) -> None:
    """What was queued while nobody was there is found."""
    runs = [await world.run(await world.session()) for _ in range(3)]
    async with working(world, FakeProvider(echo)):
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}


@pytest.mark.rule(6)
async def test_a_dead_listen_connection_is_reopened_and_then_the_table_is_looked_at(
    world: World,
) -> None:
    """D10: what was queued while nobody could listen is found after LISTEN, without a poll."""
    async with working(world, FakeProvider(echo)):
        first = await world.run(await world.session())
        await until(world, [first])
        async with away(world.pool):
            pass  # the listener's connection is dead from here on
        runs = [await world.run(await world.session()) for _ in range(3)]
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}


@pytest.mark.rule(6)
async def test_a_poll_finds_what_no_doorbell_told(database: str, clock: MockClock) -> None:
    """D10: with all rings lost, the run starts within the poll interval; before it, nothing is sent."""
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_world(pool), Time(clock, pool)
        run = await world.run(await world.session())
        await sql(pool, "update runs set not_before = $1", mock_now() + timedelta(hours=1))
        provider = FakeProvider(echo)
        async with working(world, provider, settings=TICKING):
            await time.turn(0.5)
            await sql(pool, "update runs set not_before = null")
            await time.turn(4)
            assert provider.calls == 0
            await time.turn(1)
            assert provider.calls == 1
        assert (await world.reload(run)).state is RunState.SUCCEEDED


@pytest.mark.rule(6)
async def test_a_backed_off_head_is_claimed_when_it_is_due(database: str, clock: MockClock) -> None:
    """Neither doorbell nor poll: the look says when to look again."""
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_world(pool), Time(clock, pool)
        run = await world.run(await world.session())
        await sql(pool, "update runs set not_before = $1", mock_now() + timedelta(seconds=100))
        provider = FakeProvider(echo)
        async with working(world, provider, settings=SETTINGS):
            await time.turn(99)
            assert provider.calls == 0
            await time.turn(2)
            assert provider.calls == 1
        assert (await world.reload(run)).state is RunState.SUCCEEDED


@pytest.mark.rule(6)
async def test_an_idle_process_sends_nothing_between_its_ticks(database: str, clock: MockClock) -> None:
    """However many sessions are idle: in a minute 12 polls and 2 sweeps, and no heartbeat."""
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_world(pool), Time(clock, pool)
        async with working(world, FakeProvider(echo), settings=TICKING):
            runs = [await world.run(await world.session()) for _ in range(30)]
            await until(world, runs)
            await time.turn(0.5)
            before = pool.statements
            await time.turn(60)
            assert pool.statements - before == 12 + 2


@pytest.mark.rule(6)
async def test_a_process_with_all_slots_taken_picks_up_the_next_run_when_one_frees(
    world: World,
) -> None:
    """One slot, many sessions: all are served, never two at once."""
    runs = [await world.run(await world.session()) for _ in range(5)]
    async with working(world, FakeProvider(echo), settings=attrs.evolve(SETTINGS, workers=1)):
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}
    assert one_after_another(sorted(done, key=lambda run: str(run.started_at)))


@pytest.mark.rule(6)
async def test_a_session_goes_behind_the_others_after_each_run(world: World) -> None:
    """A crowded session does not hold up one that has a single, younger run."""
    crowded, modest = await world.session(), await world.session()
    runs = [await world.run(crowded, f"crowd {n}") for n in range(4)]
    runs.append(await world.run(modest, "single"))
    provider = FakeProvider(echo)
    async with working(world, provider, settings=attrs.evolve(SETTINGS, workers=1)):
        await until(world, runs)
    order = [prompt(request) for request in provider.requests]
    assert order == ["crowd 0", "single", "crowd 1", "crowd 2", "crowd 3"]


# --- several processes ----------------------------------------------------------------------


@pytest.mark.rule(1)
async def test_of_several_processes_one_executes_a_run(world: World) -> None:
    """Each run of many is sent to a provider once, whoever was first; lost claims stay few (D18)."""
    provider = FakeProvider(echo)
    lost = counted(names.RUN_CLAIMS, outcome="lost")
    async with (
        working(world, provider),
        working(world, provider),
        working(world, provider),
    ):
        runs = [await world.run(await world.session(), f"run {n}") for n in range(20)]
        await until(world, runs)
    assert sorted(prompt(request) for request in provider.requests) == sorted(
        f"run {n}" for n in range(20)
    )
    assert counted(names.RUN_CLAIMS, outcome="lost") - lost <= 2 * 20


@pytest.mark.rule(2)
@pytest.mark.rule(26)
async def test_two_processes_never_run_one_session_at_once_and_keep_its_order(world: World) -> None:
    """Ten runs of a session, two processes: one after another, in the order of posting, no gap."""
    session = await world.session()
    provider = FakeProvider(echo)
    async with working(world, provider), working(world, provider):
        runs = [await world.run(session, f"run {n}") for n in range(10)]
        done = await until(world, runs)
    assert [prompt(request) for request in provider.requests] == [f"run {n}" for n in range(10)]
    assert one_after_another(done)
    messages = await world.sessions.messages(world.scope(), session.id, limit=100)
    assert [message.seq for message in messages] == list(range(1, 21))


@pytest.mark.rule(26)
async def test_no_connection_is_held_while_a_provider_or_a_tool_works(world: World) -> None:
    """D12: with a run inside either, every connection of the pool is free."""
    gate, answering = Gate(), trio.Event()
    provider = FakeProvider([call("hold"), waiting(answering, text("done"))])
    async with working(world, provider, gate.tool):
        run = await world.run(await world.session())
        await gate.entered.wait()
        await quiet(world)
        assert world.pool.idle == world.pool.size
        gate.open.set()
        await provider.wait_for_calls(2)
        await quiet(world)
        assert world.pool.idle == world.pool.size
        answering.set()
        await until(world, [run])


@pytest.mark.rule(26)
async def test_no_task_is_alive_after_its_run_has_settled(world: World) -> None:
    """However a run ends: its session's actor is there before and after it, and nothing else."""
    gate, session = Gate(), await world.session()
    script: list[Answer | Block] = [text("done"), call("hold"), text("done"), hanging()]
    script.append(failing(RuntimeError("a bug")))
    async with working(world, FakeProvider(script), gate.tool):
        gate.open.set()
        await until(world, [await world.run(session)])
        await quiet(world)
        living = trio.lowlevel.current_statistics().tasks_living
        for _ in ("with a tool", "cancelled", "failed"):
            run = await world.run(session)
            await until(world, [run], RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED)
            await quiet(world)
            await world.runs.cancel(world.scope(), run.id)
            await until(world, [run])
            await quiet(world)
            assert trio.lowlevel.current_statistics().tasks_living == living


@pytest.mark.parametrize("size", [1, 2])
async def test_a_tiny_pool_serves_many_runs_whose_tools_use_it_too(database: str, size: int) -> None:
    """D12: no hang with one connection, and afterwards every connection is back."""
    async with open_pool(database, size=size) as pool:
        world = await make_world(pool)

        @tool(effects=Effects.READ_ONLY)
        async def ask() -> str:
            """Ask the database something; safe to run again."""
            return str(len(await sql(pool, "select 1")))

        def script(request: ProviderRequest) -> Block:
            return call("ask") if request.messages[-1].content[0] == TextBlock("go") else text("done")

        async with working(world, FakeProvider(script), ask):
            runs = [await world.run(await world.session(), "go") for _ in range(30)]
            done = await until(world, runs)
        assert {run.state for run in done} == {RunState.SUCCEEDED}
        assert pool.idle == size
        assert pool.in_flight == 0


async def test_one_failing_session_does_not_fell_the_others(world: World) -> None:
    """A bug met by one run fails that run, and the process goes on."""

    def script(request: ProviderRequest) -> Block:
        if prompt(request) == "bad":
            raise RuntimeError("a bug")
        return echo(request)

    async with working(world, FakeProvider(script)) as worker:
        bad = await world.run(await world.session(), "bad")
        good = await world.run(await world.session(), "good")
        ended = await until(world, [bad, good])
        assert not worker.ended.is_set()
    assert [run.state for run in ended] == [RunState.FAILED, RunState.SUCCEEDED]
    assert ended[0].error
    assert ended[0].error.code is ErrorCode.INTERNAL


async def test_progress_is_told_to_the_sink(world: World) -> None:
    """What a run does can be watched live, with its id on every event."""
    recorder, gate = Recorder(), Gate()
    gate.open.set()
    provider = FakeProvider([call("hold"), text("done")])
    async with working(world, provider, gate.tool, events=recorder):
        run = await world.run(await world.session())
        await until(world, [run])
    assert {event.run_id for event in recorder.events} == {run.id}
    told = [type(event) for event in recorder.events]
    assert [told.count(kind) for kind in (TurnStarted, ToolStarted, ToolFinished)] == [2, 1, 1]


async def test_actors_that_passivate_at_once_lose_no_run(world: World) -> None:
    """With no idle time at all, every run of a session still finds or gets an actor."""
    session = await world.session()
    settings = attrs.evolve(SETTINGS, session_idle_timeout=0.0)
    async with working(world, FakeProvider(echo), settings=settings):
        runs = [await world.run(session, f"run {n}") for n in range(10)]
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}


# --- drain ----------------------------------------------------------------------------------


async def test_an_idle_process_drains_at_once(world: World) -> None:
    """Also with idle session actors: nothing is waited for."""
    async with working(world, FakeProvider(echo)) as worker:
        run = await world.run(await world.session())
        await until(world, [run])
        worker.drain.set()
        with trio.fail_after(20):
            await worker.ended.wait()


async def test_a_running_turn_finishes_and_its_run_is_handed_to_a_peer(world: World) -> None:
    """D16: released at the boundary, counted as nothing, and gone on with from there by another."""
    gate = Gate()
    provider = FakeProvider([call("hold"), text("done")])
    async with working(world, provider, gate.tool) as old:
        run = await world.run(await world.session())
        await gate.entered.wait()
        async with working(world, provider, gate.tool):
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
        world, time, gate = await make_world(pool), Time(clock, pool), Gate()
        settings = attrs.evolve(TICKING, tool_timeout=NEVER)
        async with working(world, FakeProvider([call("hold")]), gate.tool, settings=settings) as worker:
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


async def test_a_claim_that_comes_back_after_drain_began_is_given_back_at_once(world: World) -> None:
    """D16: a claim in flight when the signal comes executes nothing."""
    provider = FakeProvider(echo)
    run = await world.run(await world.session())
    lock = AsyncExitStack()
    await lock.enter_async_context(row_held(world.pool, "runs", run.id))
    async with working(world, provider) as worker:
        await until_waiting(world.pool)
        worker.drain.set()
        await lock.aclose()
    now = await world.reload(run)
    assert (now.state, now.owner_id, now.claim_epoch) == (RunState.QUEUED, None, 1)
    assert now.reclaims == 0
    assert provider.calls == 0


async def test_nothing_is_claimed_once_drain_began(world: World) -> None:
    """A run posted while a last turn is being finished is left to others."""
    gate = Gate()
    async with working(world, FakeProvider([call("hold")]), gate.tool) as worker:
        busy = await world.run(await world.session())
        await gate.entered.wait()
        worker.drain.set()
        late = await world.run(await world.session())
        gate.open.set()
        await worker.ended.wait()
    assert (await world.reload(late)).claim_epoch == 0
    assert (await world.reload(busy)).state is RunState.QUEUED


@pytest.mark.rule(11)
async def test_cancel_and_drain_is_cancelled(world: World) -> None:
    """The row says which of the two ends the run."""
    gate = Gate()
    settings = attrs.evolve(SETTINGS, drain_timeout=0.0)
    async with working(world, FakeProvider([call("hold")]), gate.tool, settings=settings) as worker:
        run = await world.run(await world.session())
        await gate.entered.wait()
        await sql(world.pool, "update runs set cancel_requested_at = now()")
        worker.drain.set()
        await worker.ended.wait()
    assert (await world.reload(run)).state is RunState.CANCELLED


async def test_a_process_torn_down_releases_its_runs(world: World) -> None:
    """D17: cancelled from outside, the runs are given back by a shielded write."""
    gate = Gate()
    async with working(world, FakeProvider([call("hold")]), gate.tool) as worker:
        run = await world.run(await world.session())
        await gate.entered.wait()
        worker.scope.cancel()
        await worker.ended.wait()
    now = await world.reload(run)
    assert (now.state, now.owner_id, now.reclaims) == (RunState.QUEUED, None, 0)


# --- a database that goes away --------------------------------------------------------------


async def test_a_run_in_the_middle_of_a_stream_survives_an_outage(world: World) -> None:
    """D11: the database is away while the model talks; the run is finished once, by the same claim."""
    gate = trio.Event()
    provider = FakeProvider([waiting(gate, text("done"))])
    async with working(world, provider) as worker:
        run = await world.run(await world.session())
        await provider.wait_for_calls(1)
        async with away(world.pool):
            gate.set()
            await wait_all_tasks_blocked(0.05)
        (done,) = await until(world, [run])
        assert not worker.ended.is_set()
    assert (done.state, done.claim_epoch) == (RunState.SUCCEEDED, 1)


async def test_a_claim_whose_answer_was_lost_is_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11: nobody waits for its lease to lapse: what is ours without an actor is given back."""
    async with working(world, FakeProvider(echo)):
        await quiet(world)
        LostClaim(monkeypatch)
        run = await world.run(await world.session())
        (done,) = await until(world, [run])
    assert (done.state, done.claim_epoch, done.reclaims) == (RunState.SUCCEEDED, 2, 0)


async def test_a_claim_whose_answer_was_lost_is_given_back_by_the_drain(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D16: also one that this process does not know of."""
    run = await world.run(await world.session())
    lost = LostClaim(monkeypatch)
    async with working(world, FakeProvider(echo)) as worker:
        await lost.lost.wait()
        worker.drain.set()
    now = await world.reload(run)
    assert (now.state, now.owner_id, now.reclaims) == (RunState.QUEUED, None, 0)


async def test_an_idle_process_survives_an_outage_without_spinning(
    database: str, clock: MockClock
) -> None:
    """D10, D11: away for ten minutes at every kind of tick; tries stay few, and then it goes on."""
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_world(pool), Time(clock, pool)
        async with working(world, FakeProvider(echo), settings=TICKING) as worker:
            await time.turn(1)
            async with away(pool):
                before = pool.statements
                await time.turn(600)
                tries = pool.statements - before
            assert not worker.ended.is_set()
            assert tries <= 600 / TICKING.poll_interval + 600 / TICKING.reclaim_interval + 10
            run = await world.run(await world.session())
            await time.turn(10)
            assert (await world.reload(run)).state is RunState.SUCCEEDED


async def test_a_cut_in_every_connection_at_once_costs_no_run(world: World) -> None:
    """D11: connections die while thirty runs are queued and executed; each is done exactly once."""
    provider = FakeProvider(echo)
    settings = attrs.evolve(SETTINGS, poll_interval=0.2)
    async with working(world, provider, settings=settings):
        runs = [await world.run(await world.session(), f"run {n}") for n in range(30)]
        await cut(world.pool)
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}
    assert len({prompt(request) for request in provider.requests}) == 30


async def test_a_permanent_actor_that_cannot_work_ends_the_process(world: World) -> None:
    """Let it crash: with a schema that is not ours, nothing can be executed, and nobody pretends."""
    await sql(world.pool, "alter table runs rename to walks")
    with pytest.raises(ExceptionGroup):
        async with working(world, FakeProvider(echo)) as worker:
            await worker.ended.wait()
