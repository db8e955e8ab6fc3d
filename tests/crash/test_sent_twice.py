"""A write whose answer is lost is sent again, while the first may still be live, and is done once."""

from __future__ import annotations

import logging
from collections import Counter

import attrs
import pytest
import trio

from hango.db.pool import open_pool
from hango.telemetry import names

from support.commits import intercept_writes
from support.counters import counted
from support.crash_runs import CrashHarness, ScenarioRun, VisibleState, repeated
from support.crash_scenarios import SCENARIOS, Scenario
from support.crashing_process import commits
from support.crashing_tools import WITH_HEARTBEAT, CrashingTools
from support.repeated_writes import LostReply, RepeatedWrites
from support.workers import Worker, started_worker, until

# What failed is tried again soon, as far as its executor tries it again at all.
_SOON = attrs.evolve(WITH_HEARTBEAT, heartbeat_interval=4.0, reclaim_interval=0.05, poll_interval=0.05)
_RETRY = 0.001  # seconds


@pytest.mark.rule(3)
@pytest.mark.rule(5)
@pytest.mark.rule(7)
@pytest.mark.rule(9)
@pytest.mark.rule(10)
@pytest.mark.rule(11)
@pytest.mark.rule(26)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_every_commit_may_be_sent_twice(
    stage: CrashHarness, scenario: Scenario, covered: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What is stored in the end is what is stored when no answer is lost, and no body runs again."""
    stage.patch.setattr("hango.store.fence._FIRST_PAUSE", _RETRY)
    scene, expected = await stage.without_crash(scenario)
    told = [line.split()[1] for line in commits(scene.journal)]
    rejected = counted(names.FENCE_REJECTED)
    points = [(number, lost) for number in range(1, len(told) + 1) for lost in LostReply]
    async with open_pool(stage.database) as pool:
        scenes = await stage.prepare(scenario, len(points))
        lost = [
            await lose(stage, scene, expected, RepeatedWrites(pool, stage.world.pool, *point))
            for scene, point in zip(scenes, points, strict=True)
        ]
    assert Counter(twice.name for twice in lost) == Counter(told * len(LostReply))
    assert counted(names.FENCE_REJECTED) == rejected
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    waited = sum(twice.waited for twice in lost)
    covered.append(
        f"sent twice, {scenario.name}: {len(lost)} points,"
        f" {len(told)} commits in {len(LostReply)} ways;"
        f" {waited} times the repeat waited for the first"
    )


async def lose(
    stage: CrashHarness, scene: ScenarioRun, expected: VisibleState, twice: RepeatedWrites
) -> RepeatedWrites:
    """Lose the answer to one commit, and compare."""
    await stage.begin(scene)
    before = len(scene.marks())
    with stage.patch.context() as patch:
        intercept_writes(patch, twice.pool, twice.send)
        await perform(scene, twice)
    if await scene.unfinished():
        await scene.recover()
    assert await scene.outcome() == expected
    assert repeated(scene.marks()[before:]) == []
    return twice


async def perform(scene: ScenarioRun, twice: RepeatedWrites) -> None:
    """Execute the scene in this process, until all is done or the process has drained."""
    body = CrashingTools(twice.pool, dict(scene.scenario.fates))
    provider = body.provider
    process = started_worker(
        scene.world,
        {"scripted": provider},
        *body.tools,
        settings=_SOON,
        pool=twice.pool,
        verifiers=body.verifiers,
    )
    async with process as worker, trio.open_nursery() as nursery:
        body.drain = worker.drain
        nursery.start_soon(drain_at_the_end, scene, worker)
        await worker.ended.wait()
        nursery.cancel_scope.cancel()
    assert provider.complaints == []


async def drain_at_the_end(scene: ScenarioRun, worker: Worker) -> None:
    """Drain the process once all runs have ended."""
    await until(scene.world, scene.runs)
    worker.drain.set()
