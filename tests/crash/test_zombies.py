"""A process that was frozen and thaws after its run has moved on changes nothing any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import attrs
import pytest

from hango.domain import RunState, ToolResultBlock, new_id
from hango.store.listen import CHANNEL, Ring
from hango.store.rows import Row

from support.crashes import Scenario, Scene, Stage, repeated, unsafe
from support.lives import Cut, Life, commits, rejected
from support.mortal import Body, Fate
from support.shop import TOLD
from support.workers import SETTINGS, until, working
from support.world import World, sql

pytestmark = [pytest.mark.rule(3), pytest.mark.rule(9)]

_MIXED = Scenario("mixed", ("one look+pay post",))
_TABLES = "select table_name from information_schema.tables where table_schema = 'public' order by 1"


async def everything(world: World) -> Mapping[str, Sequence[Row]]:
    """Read every row of every table, byte for byte."""
    names = [row["table_name"] for row in await sql(world.pool, _TABLES)]
    assert {"messages", "runs", "sessions", "tool_effects", "audit_events"} <= set(names)
    return {
        name: await sql(world.pool, f"select {name}::text as row from {name} order by 1")  # noqa: S608 - the schema's words
        for name in names
    }


def deaf(scene: Scene) -> Life:
    """Return the life of a process that hears of nothing."""
    elsewhere = urlsplit(scene.database)._replace(path="/postgres").geturl()
    return attrs.evolve(scene.life(), deaf_to=elsewhere)


async def thaw(stage: Stage) -> None:
    """Let the process go on to its end, which changes no row of any table, and rings nobody."""
    before = await everything(stage.world)
    own = Ring(new_id(), new_id())
    async with stage.world.pool.listen() as rings:
        stage.forks.go_on()
        assert await stage.forks.ended() == 0
        ring = f"{own.session_id} {own.run_id}"
        await sql(stage.world.pool, "select pg_notify($1, $2)", CHANNEL, ring)
        assert await anext(rings) == own
    assert await everything(stage.world) == before


async def frozen(stage: Stage, life: Life) -> None:
    """Start a process, and wait until it is stopped."""
    await stage.forks.start(life)
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
    stage: Stage, prompt: str, mark: str, tries: Mapping[str, int]
) -> None:
    """Stopped in mid-tool or mid-answer, it tries to go on after a peer has finished its run."""
    scene = await stage.set(Scenario("frozen", (prompt,), {mark: Fate.FREEZE}))
    await frozen(stage, deaf(scene))
    await scene.recover()
    marks = scene.marks()
    await thaw(stage)
    assert scene.marks() == marks
    assert rejected(scene.journal) == tries


async def test_an_unsafe_call_of_a_zombie_is_not_known(stage: Stage) -> None:
    """The model was told that it may have taken effect; that the zombie knows better comes too late."""
    scene = await stage.set(Scenario("frozen", ("one post",), {"post": Fate.FREEZE}))
    await frozen(stage, deaf(scene))
    await scene.recover()
    await thaw(stage)
    messages = await stage.world.sessions.messages(stage.world.scope(), scene.session.id)
    assert messages[2].content == (ToolResultBlock("call_1_0", f"post {TOLD}", is_error=True),)
    assert sum(mark.startswith("post") for mark in scene.marks()) == 1


async def test_a_process_thawed_after_any_commit_writes_nothing(
    stage: Stage, covered: list[str]
) -> None:
    """Stopped just after each commit of a run, it learns of it when a peer has done all the rest."""
    scene, _ = await stage.without_crash(_MIXED)
    names = [line.split()[1] for line in commits(scene.journal)]
    for number in range(1, len(names) + 1):
        scene = await stage.set(_MIXED)
        await frozen(stage, attrs.evolve(deaf(scene), cut=Cut(number, "after", Fate.FREEZE)))
        await scene.recover()
        marks = scene.marks()
        await thaw(stage)
        assert repeated(scene.marks()[len(marks) :]) == []
        assert repeated(unsafe(scene.marks())) == []
        tries = sum(rejected(scene.journal).values())
        assert tries == (0 if number == len(names) else 1)
    covered.append(f"frozen, {_MIXED.name}: {len(names)} points, after each of {', '.join(names)}")


@pytest.mark.rule(4)
async def test_a_process_frozen_for_longer_than_its_lease_does_not_even_try(stage: Stage) -> None:
    """Nobody turns a clock: the lease lapses while it is stopped, and it sees that when it thaws."""
    scene = await stage.set(Scenario("frozen", ("one look look",), {"look": Fate.FREEZE}))
    await frozen(stage, attrs.evolve(scene.life(), lease_ttl=2.0))
    body = Body(stage.world.pool, {})
    eager = attrs.evolve(SETTINGS, reclaim_interval=0.1)
    async with working(stage.world, {"scripted": body.provider}, *body.tools, settings=eager):
        (run,) = await until(stage.world, scene.runs)
    assert (run.state, run.claim_epoch, run.reclaims) == (RunState.SUCCEEDED, 2, 0)
    marks = scene.marks()
    await thaw(stage)
    assert scene.marks() == marks
    assert rejected(scene.journal) == {}


async def test_a_process_that_claimed_its_own_run_again_is_fenced_from_itself(stage: Stage) -> None:
    """Owner and process are the same, and only the epoch tells the execution that was frozen."""
    scene = await stage.set(Scenario("frozen", ("one look look",), {"look": Fate.LINGER}))
    await frozen(stage, attrs.evolve(deaf(scene), again=True))
    await scene.lapse()
    assert await stage.world.queue().sweep() == 1
    stage.forks.go_on()
    await stage.forks.stopped()
    (run,) = await until(stage.world, scene.runs)
    assert (run.state, run.claim_epoch) == (RunState.SUCCEEDED, 2)
    marks = scene.marks()
    await thaw(stage)
    assert scene.marks() == marks
    assert rejected(scene.journal) == {"end_turn": 1}
