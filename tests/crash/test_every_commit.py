"""A process may end just before or after any of its commits: nothing is lost, nothing runs twice."""

from __future__ import annotations

from collections import Counter

import pytest

from support.commits import SIDES, Side
from support.crash_runs import (
    CompletedWork,
    CrashHarness,
    ScenarioRun,
    VisibleState,
    repeated,
    unsafe,
    with_unknown_results,
)
from support.crash_scenarios import SCENARIOS, Scenario
from support.crashing_process import CrashPoint, commits
from support.crashing_tools import DIED


@pytest.mark.rule(3)
@pytest.mark.rule(5)
@pytest.mark.rule(7)
@pytest.mark.rule(8)
@pytest.mark.rule(9)
@pytest.mark.rule(10)
@pytest.mark.rule(11)
@pytest.mark.rule(14)
@pytest.mark.rule(26)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_a_crash_at_any_commit_changes_nothing(
    stage: CrashHarness, scenario: Scenario, covered: list[str]
) -> None:
    """What is stored in the end is what is stored without it; nothing that was done runs again."""
    scene, expected = await stage.without_crash(scenario)
    names = [line.split()[1] for line in commits(scene.journal)]
    assert repeated(scene.marks()) == []
    points = [(number, side) for number in range(1, len(names) + 1) for side in SIDES]
    scenes = await stage.prepare(scenario, len(points))
    cuts = [
        await crash(stage, scene, expected, *point) for scene, point in zip(scenes, points, strict=True)
    ]
    assert [(number, side) for number, _, side in cuts] == points
    assert len(set(points)) == 2 * len(names)
    assert Counter(name for _, name, _ in cuts) == Counter(names * 2)
    told = ", ".join(f"{count} {name}" for name, count in Counter(names).items())
    covered.append(f"crash, {scenario.name}: {len(cuts)} points, both sides of {told}")


async def crash(
    stage: CrashHarness, scene: ScenarioRun, expected: VisibleState, number: int, side: Side
) -> tuple[int, str, str]:
    """End a process there, recover in another, and compare; return where it ended, as it says."""
    await stage.begin(scene)
    before = await scene.crashed()
    assert await stage.forks.lived(scene.life(CrashPoint(number, side))) == DIED
    crashed = await scene.crashed()
    await scene.recover()
    assert await scene.outcome() == with_unknown_results(expected, crashed.unknown - before.unknown)
    assert_nothing_twice(scene, crashed, before)
    at, name, where = commits(scene.journal)[-1].split()
    return int(at), name, where


def assert_nothing_twice(scene: ScenarioRun, crashed: CompletedWork, before: CompletedWork) -> None:
    """Nothing that was done ran again, the rest at most once more, and what is unsafe at most once."""
    marks = scene.marks()
    after = marks[crashed.length :]
    assert repeated(marks[before.length : crashed.length]) == []
    assert repeated(after) == []
    assert crashed.marks.isdisjoint(after)
    assert repeated(unsafe(marks)) == []
