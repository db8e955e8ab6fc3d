"""A process that was frozen and thaws after its run has moved on changes nothing any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pytest

from hango.db.notifications import CHANNEL, Notification
from hango.db.queries import Row
from hango.domain import RunState, ToolResultBlock, new_id
from hango.testing.plugin import SeededTenant, sql

from support.crash_runs import CrashHarness, repeated, unsafe
from support.crash_scenarios import Scenario
from support.crashing_process import CrashPoint, ProcessPlan, commits, rejected
from support.crashing_tools import CrashingTools, ProcessFault
from support.recording_tools import UNKNOWN_RESULT
from support.workers import SETTINGS, started_worker, until

pytestmark = [pytest.mark.rule(3), pytest.mark.rule(9)]

_MIXED = Scenario("mixed", ("one look+pay post",))
_TABLES = "select table_name from information_schema.tables where table_schema = 'public' order by 1"


async def everything(world: SeededTenant) -> Mapping[str, Sequence[Row]]:
    """Read every row of every table, byte for byte."""
    names = [row["table_name"] for row in await sql(world.pool, _TABLES)]
    assert {"messages", "runs", "sessions", "tool_effects", "audit_events"} <= set(names)
    return {
        name: await sql(world.pool, f"select {name}::text as row from {name} order by 1")  # noqa: S608 - the schema's words
        for name in names
    }


async def thaw(stage: CrashHarness) -> None:
    """Let the process go on to its end, which changes no row of any table, and rings nobody."""
    before = await everything(stage.world)
    own = Notification(new_id(), new_id(), new_id())
    async with stage.world.pool.listen() as rings:
        stage.forks.go_on()
        assert await stage.forks.ended() == 0
        ring = f"{own.session_id} {own.run_id} {own.tenant_id}"
        await sql(stage.world.pool, "select pg_notify($1, $2)", CHANNEL, ring)
        assert await anext(rings) == own
    assert await everything(stage.world) == before


async def frozen(stage: CrashHarness, life: ProcessPlan, elsewhere: str | None = None) -> None:
    """Start a process and wait until it is stopped; with *elsewhere*, one that hears of nothing."""
    await stage.forks.start(attrs.evolve(life, deaf_to=elsewhere))
    await stage.forks.stopped()


@pytest.mark.parametrize(
    ("prompt", "mark", "tries"),
    [
        ("one look look", "look", {"end_turn": 1}),
        ("one pay look", "pay", {"finish_call": 1}),
        ("one post look", "post", {"finish_call": 1}),
        ("one look", "provider one 1", {"append": 1}),
        ("one look", "provider one 2", {"settle": 1}),
    ],
)
async def test_a_thawed_process_writes_nothing(
    stage: CrashHarness, empty_database: str, prompt: str, mark: str, tries: Mapping[str, int]
) -> None:
    """Stopped in mid-tool or mid-answer, it tries to go on after a peer has finished its run."""
    scene = await stage.set(Scenario("frozen", (prompt,), fates={mark: ProcessFault.FREEZE}))
    await frozen(stage, scene.life(), empty_database)
    await scene.recover()
    marks = scene.marks()
    await thaw(stage)
    assert scene.marks() == marks
    assert rejected(scene.journal) == tries


async def test_an_unsafe_call_of_a_zombie_is_not_known(
    stage: CrashHarness, empty_database: str
) -> None:
    """The model was told that it may have taken effect; that the zombie knows better comes too late."""
    scene = await stage.set(Scenario("frozen", ("one post",), fates={"post": ProcessFault.FREEZE}))
    await frozen(stage, scene.life(), empty_database)
    await scene.recover()
    await thaw(stage)
    messages = await stage.world.sessions.messages(stage.world.scope(), scene.session.id)
    assert messages[2].content == (
        ToolResultBlock("call_1_0", f"post {UNKNOWN_RESULT}", is_error=True),
    )
    assert sum(mark.startswith("post") for mark in scene.marks()) == 1


async def test_a_process_thawed_after_any_commit_writes_nothing(
    stage: CrashHarness, empty_database: str, covered: list[str]
) -> None:
    """Stopped just after each commit of a run, it learns of it when a peer has done all the rest."""
    scene, _ = await stage.without_crash(_MIXED)
    names = [line.split()[1] for line in commits(scene.journal)]
    for number in range(1, len(names) + 1):
        scene = await stage.set(_MIXED)
        await frozen(
            stage, scene.life(CrashPoint(number, "after", ProcessFault.FREEZE)), empty_database
        )
        await scene.recover()
        marks = scene.marks()
        await thaw(stage)
        assert repeated(scene.marks()[len(marks) :]) == []
        assert repeated(unsafe(scene.marks())) == []
        tries = sum(rejected(scene.journal).values())
        assert tries == (0 if number == len(names) else 1)
    covered.append(f"frozen, {_MIXED.name}: {len(names)} points, after each of {', '.join(names)}")


@pytest.mark.rule(4)
async def test_a_process_frozen_for_longer_than_its_lease_does_not_even_try(
    stage: CrashHarness,
) -> None:
    """Nobody turns a clock: the lease lapses while it is stopped, and it sees that when it thaws."""
    scene = await stage.set(Scenario("frozen", ("one look look",), fates={"look": ProcessFault.FREEZE}))
    await frozen(stage, attrs.evolve(scene.life(), lease_ttl=2.0))
    body = CrashingTools(stage.world.pool, {})
    eager = attrs.evolve(SETTINGS, reclaim_interval=0.1)
    async with started_worker(stage.world, {"scripted": body.provider}, *body.tools, settings=eager):
        (run,) = await until(stage.world, scene.runs)
    assert (run.state, run.claim_epoch, run.reclaims) == (RunState.SUCCEEDED, 2, 0)
    marks = scene.marks()
    await thaw(stage)
    assert scene.marks() == marks
    assert rejected(scene.journal) == {}


async def test_a_process_that_claimed_its_own_run_again_is_fenced_from_itself(
    stage: CrashHarness, empty_database: str
) -> None:
    """Owner, process, state and turn are the same: only the epoch tells the frozen execution."""
    scenario = Scenario("frozen", ("one look tidy",), fates={"look": ProcessFault.LINGER})
    _, expected = await stage.without_crash(attrs.evolve(scenario, fates={}))
    scene = await stage.set(scenario)
    await frozen(stage, attrs.evolve(scene.life(), again=True), empty_database)
    await scene.lapse()
    assert await stage.world.queue().sweep() == 1
    stage.forks.go_on()
    await stage.forks.stopped()  # in the same tool, in its second execution
    before = await everything(stage.world)
    stage.forks.go_on()
    await stage.forks.stopped()  # when the first execution has ended
    assert await everything(stage.world) == before
    assert (await stage.world.reload(scene.runs[0])).claim_epoch == 2
    stage.forks.go_on()
    assert await stage.forks.ended() == 0
    assert await scene.outcome() == expected
    assert rejected(scene.journal) == {"end_turn": 1}
