"""What a process claims, in which order, and how it ends; several processes meet only in Postgres."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest
import trio
from trio.testing import MockClock

from hango.db.pool import open_pool
from hango.domain import (
    Block,
    Effects,
    ErrorCode,
    ProviderRequest,
    RunState,
    TextBlock,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from hango.telemetry import names
from hango.testing import Answer, FakeProvider, call, failing, hanging, text, waiting
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql
from hango.tools import tool

from support.counters import counted
from support.workers import (
    SETTINGS,
    TICKING,
    BlockingTool,
    EventRecorder,
    HandClock,
    database_away,
    echo,
    mock_now,
    prompt,
    started_worker,
    until,
    until_idle,
)


def soloist(overlaps: list[int]) -> FakeProvider:
    """Echo, and note how many other calls are open at each call."""

    def answer(request: ProviderRequest) -> Block:
        overlaps.append(provider.calls - 1 - provider.closed)
        return echo(request)

    provider = FakeProvider(answer)
    return provider


def alive(name: str) -> list[str]:
    """Return the names of the task of that name and of everything below it, and of all tool calls."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    everything = below(root)
    tops = [task for task in everything if task.name == name]
    return [
        *(task.name for top in tops for task in below(top)),
        *(task.name for task in everything if task.name.startswith(("tool call", "claim"))),
    ]


def below(task: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    """Return *task* and all tasks it has begun that still live."""
    children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return [task, *(found for child in children for found in below(child))]


@pytest.fixture
def clock() -> MockClock:
    """Have a clock that stands still until it is turned."""
    return MockClock()


# --- doorbells, looks and polls -------------------------------------------------------------


@pytest.mark.rule(6)
async def test_the_doorbell_alone_gets_a_run_executed(world: SeededTenant) -> None:
    """No poll, heartbeat or sweep comes within the test, and the run is done all the same."""
    async with started_worker(world, FakeProvider(echo)):
        run = await world.run(await world.session(), "hello")
        (done,) = await until(world, [run])
    assert done.state is RunState.SUCCEEDED
    assert done.iterations == 1


@pytest.mark.rule(6)
async def test_a_process_looks_when_it_starts(world: SeededTenant) -> None:
    """What was queued while nobody was there is found."""
    runs = [await world.run(await world.session()) for _ in range(3)]
    async with started_worker(world, FakeProvider(echo)):
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}


@pytest.mark.rule(6)
async def test_a_dead_listen_connection_is_reopened_and_then_the_table_is_looked_at(
    world: SeededTenant,
) -> None:
    """D10: what was queued while nobody could listen is found after LISTEN, without a poll."""
    async with started_worker(world, FakeProvider(echo)):
        first = await world.run(await world.session())
        await until(world, [first])
        async with database_away(world.pool):
            pass  # the listener's connection is dead from here on
        runs = [await world.run(await world.session()) for _ in range(3)]
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}


@pytest.mark.rule(6)
async def test_a_poll_finds_what_no_doorbell_told(database: str, clock: MockClock) -> None:
    """D10: with all rings lost, the run starts within the poll interval; before it, nothing is sent."""
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_seeded_tenant(pool), HandClock(clock, pool)
        run = await world.run(await world.session())
        await sql(pool, "update runs set not_before = $1", mock_now() + timedelta(hours=1))
        provider = FakeProvider(echo)
        async with started_worker(world, provider, settings=TICKING):
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
        world, time = await make_seeded_tenant(pool), HandClock(clock, pool)
        run = await world.run(await world.session())
        await sql(pool, "update runs set not_before = $1", mock_now() + timedelta(seconds=100))
        provider = FakeProvider(echo)
        async with started_worker(world, provider, settings=SETTINGS):
            await time.turn(99)
            assert provider.calls == 0
            await time.turn(2)
            assert provider.calls == 1
        assert (await world.reload(run)).state is RunState.SUCCEEDED


@pytest.mark.rule(6)
async def test_an_idle_process_sends_nothing_between_its_ticks(database: str, clock: MockClock) -> None:
    """With a thousand idle sessions: in a minute 12 polls and 2 sweeps, and no heartbeat."""
    live = "select from runs where finished_at is null limit 1"
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_seeded_tenant(pool), HandClock(clock, pool)
        async with started_worker(world, FakeProvider(echo), settings=TICKING), pool.listen() as rings:
            for _ in range(1000):
                await world.run(await world.session())
            while await sql(pool, live):
                await anext(rings)
            await time.turn(0.5)
            before = pool.statements
            await time.turn(60)
            assert pool.statements - before == 12 + 2


@pytest.mark.rule(6)
async def test_a_process_with_all_slots_taken_picks_up_the_next_run_when_one_frees(
    world: SeededTenant,
) -> None:
    """One slot, many sessions: all are served, never two at once."""
    runs = [await world.run(await world.session()) for _ in range(5)]
    overlaps: list[int] = []
    async with started_worker(world, soloist(overlaps), settings=attrs.evolve(SETTINGS, workers=1)):
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}
    assert overlaps == [0] * 5


@pytest.mark.rule(6)
async def test_a_session_goes_behind_the_others_after_each_run(world: SeededTenant) -> None:
    """A crowded session does not hold up one that has a single, younger run."""
    crowded, modest = await world.session(), await world.session()
    runs = [await world.run(crowded, f"crowd {n}") for n in range(4)]
    runs.append(await world.run(modest, "single"))
    provider = FakeProvider(echo)
    async with started_worker(world, provider, settings=attrs.evolve(SETTINGS, workers=1)):
        await until(world, runs)
    order = [prompt(request) for request in provider.requests]
    assert order == ["crowd 0", "single", "crowd 1", "crowd 2", "crowd 3"]


# --- several processes ----------------------------------------------------------------------


@pytest.mark.rule(1)
async def test_of_several_processes_one_executes_a_run(world: SeededTenant) -> None:
    """Each run of many is sent to a provider once, whoever was first; lost claims stay few (D18)."""
    provider = FakeProvider(echo)
    lost = counted(names.RUN_CLAIMS, outcome="lost")
    async with (
        started_worker(world, provider),
        started_worker(world, provider),
        started_worker(world, provider),
    ):
        runs = [await world.run(await world.session(), f"run {n}") for n in range(20)]
        await until(world, runs)
    assert sorted(prompt(request) for request in provider.requests) == sorted(
        f"run {n}" for n in range(20)
    )
    assert counted(names.RUN_CLAIMS, outcome="lost") - lost <= 2 * 20


@pytest.mark.rule(2)
@pytest.mark.rule(26)
async def test_two_processes_never_run_one_session_at_once_and_keep_its_order(
    world: SeededTenant,
) -> None:
    """Ten runs of a session, two processes: one after another, in the order of posting, no gap."""
    session = await world.session()
    overlaps: list[int] = []
    provider = soloist(overlaps)
    async with started_worker(world, provider), started_worker(world, provider):
        runs = [await world.run(session, f"run {n}") for n in range(10)]
        await until(world, runs)
    assert [prompt(request) for request in provider.requests] == [f"run {n}" for n in range(10)]
    assert overlaps == [0] * 10
    messages = await world.sessions.messages(world.scope(), session.id, limit=100)
    assert [message.seq for message in messages] == list(range(1, 21))


@pytest.mark.rule(26)
async def test_no_connection_is_held_while_a_provider_or_a_tool_works(world: SeededTenant) -> None:
    """D12: with a run inside either, every connection of the pool is free."""
    gate, answering = BlockingTool(), trio.Event()
    provider = FakeProvider([call("hold"), waiting(answering, text("done"))])
    async with started_worker(world, provider, gate.tool):
        run = await world.run(await world.session())
        await gate.entered.wait()
        await until_idle(world)
        assert world.pool.idle == world.pool.size
        gate.open.set()
        await provider.wait_for_calls(2)
        await until_idle(world)
        assert world.pool.idle == world.pool.size
        answering.set()
        await until(world, [run])


@pytest.mark.rule(26)
async def test_no_task_is_alive_after_its_run_has_settled(world: SeededTenant) -> None:
    """However a run ends: its session's actor is there before and after it, and nothing else."""
    gate, session = BlockingTool(), await world.session()
    script: list[Answer | Block] = [text("done"), call("hold"), text("done"), hanging()]
    script.append(failing(RuntimeError("a bug")))
    async with started_worker(world, FakeProvider(script), gate.tool):
        gate.open.set()
        for _ in ("answered", "with a tool", "cancelled", "failed"):
            run = await world.run(session)
            await until(world, [run], RunState.RUNNING, RunState.SUCCEEDED, RunState.FAILED)
            await until_idle(world)
            await world.runs.cancel(world.scope(), run.id)
            await until(world, [run])
            await until_idle(world)
            assert alive(f"session {session.id}") == [f"session {session.id}"]


@pytest.mark.parametrize("size", [1, 2])
async def test_a_tiny_pool_serves_many_runs_whose_tools_use_it_too(database: str, size: int) -> None:
    """D12: no hang with one connection, and afterwards every connection is back."""
    async with open_pool(database, size=size) as pool:
        world = await make_seeded_tenant(pool)

        @tool(effects=Effects.READ_ONLY)
        async def ask() -> str:
            """Ask the database something; safe to run again."""
            return str(len(await sql(pool, "select 1")))

        def script(request: ProviderRequest) -> Block:
            return call("ask") if request.messages[-1].content[0] == TextBlock("go") else text("done")

        async with started_worker(world, FakeProvider(script), ask):
            runs = [await world.run(await world.session(), "go") for _ in range(30)]
            done = await until(world, runs)
        assert {run.state for run in done} == {RunState.SUCCEEDED}
        assert pool.idle == size
        assert pool.in_flight == 0


async def test_one_failing_session_does_not_fell_the_others(world: SeededTenant) -> None:
    """A bug met by one run fails that run, and the process goes on."""

    def script(request: ProviderRequest) -> Block:
        if prompt(request) == "bad":
            raise RuntimeError("a bug")
        return echo(request)

    async with started_worker(world, FakeProvider(script)) as worker:
        bad = await world.run(await world.session(), "bad")
        good = await world.run(await world.session(), "good")
        ended = await until(world, [bad, good])
        assert not worker.ended.is_set()
    assert [run.state for run in ended] == [RunState.FAILED, RunState.SUCCEEDED]
    assert ended[0].error
    assert ended[0].error.code is ErrorCode.PROVIDER_ERROR


async def test_progress_is_told_to_the_sink(world: SeededTenant) -> None:
    """What a run does can be watched live, with its id on every event."""
    recorder, gate = EventRecorder(), BlockingTool()
    gate.open.set()
    provider = FakeProvider([call("hold"), text("done")])
    async with started_worker(world, provider, gate.tool, events=recorder):
        run = await world.run(await world.session())
        await until(world, [run])
    assert {event.run_id for event in recorder.events} == {run.id}
    told = [type(event) for event in recorder.events]
    assert [told.count(kind) for kind in (TurnStarted, ToolStarted, ToolFinished)] == [2, 1, 1]


async def test_actors_that_passivate_at_once_lose_no_run(world: SeededTenant) -> None:
    """With no idle time at all, every run of a session still finds or gets an actor."""
    session = await world.session()
    settings = attrs.evolve(SETTINGS, session_idle_timeout=0.0)
    async with started_worker(world, FakeProvider(echo), settings=settings):
        runs = [await world.run(session, f"run {n}") for n in range(10)]
        done = await until(world, runs)
    assert {run.state for run in done} == {RunState.SUCCEEDED}
