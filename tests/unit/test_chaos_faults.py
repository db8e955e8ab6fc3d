"""What a chaos run is going to do is decided by its seed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hango.chaos.faults import FaultKind, draw_faults
from hango.chaos.scripts import TOOLS, ClientPlan, RunRequest, Script


def requests(seed: int, name: str, count: int = 300) -> list[RunRequest]:
    """Draw the first *count* requests of a client."""
    client = ClientPlan.of(seed, name)
    return [client.next() for _ in range(count)]


def test_a_seed_decides_faults_and_runs() -> None:
    """The same seed draws the same faults and runs, another one draws others."""
    assert draw_faults(7, 60, 2) == draw_faults(7, 60, 2)
    assert draw_faults(7, 60, 2) != draw_faults(8, 60, 2)
    assert requests(7, "s1") == requests(7, "s1")
    assert requests(7, "s1") != requests(8, "s1")
    assert requests(7, "s1") != requests(7, "s2")


@pytest.mark.parametrize("seconds", [1, 2, 5, 60, 600])
@pytest.mark.parametrize("seed", range(5))
def test_there_is_a_kill_a_second_and_some_of_everything(seed: int, seconds: int) -> None:
    """Kills are never more than two stretches apart, and no kind is left out of a short run."""
    faults = draw_faults(seed, seconds, 2)
    kills = [fault.at for fault in faults if fault.kind is FaultKind.KILL]
    assert len(kills) >= seconds
    assert all(after - before < 2 for before, after in pairwise(kills))
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert faults == sorted(faults, key=lambda fault: fault.at)
    assert all(0 <= fault.at < seconds for fault in faults)


def test_a_pause_outlives_a_lease() -> None:
    """Otherwise no other process would take over the runs."""
    pauses = [fault for fault in draw_faults(1, 600, 2) if fault.kind is FaultKind.PAUSE]
    assert pauses
    assert all(fault.duration > 2 for fault in pauses)


def test_the_text_of_a_script_is_the_script() -> None:
    """It is a run's prompt, and what the model makes of it must be what was meant."""
    scripts = [request.script for request in requests(1, "s1")]
    assert [Script.parse(script.text) for script in scripts] == scripts
    assert len({script.tag for script in scripts}) == 300


def test_everything_that_can_be_asked_for_is() -> None:
    """Every tool, refused request, broken stream and cancel is there in a minute's worth of runs."""
    drawn = requests(1, "s1")
    turns = [turn for request in drawn for turn in request.script.turns]
    assert {step.tool for turn in turns for step in turn.steps} == set(TOOLS)
    assert {turn.refused_first for turn in turns} == {True, False}
    assert {request.script.ending for request in drawn} == {"done", "broken"}
    assert {request.cancel_after is None for request in drawn} == {True, False}
