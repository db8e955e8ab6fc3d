"""What a chaos run is going to do is decided by its seed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hango.chaos.faults import TOOLS, Client, Kind, Order, Script, draw_blows


def orders(seed: int, name: str, count: int = 300) -> list[Order]:
    """Draw the first *count* orders of a client."""
    client = Client.of(seed, name)
    return [client.next() for _ in range(count)]


def test_a_seed_is_a_plan() -> None:
    """The same seed draws the same blows and runs, another one draws others."""
    assert draw_blows(7, 60, 2) == draw_blows(7, 60, 2)
    assert draw_blows(7, 60, 2) != draw_blows(8, 60, 2)
    assert orders(7, "s1") == orders(7, "s1")
    assert orders(7, "s1") != orders(8, "s1")
    assert orders(7, "s1") != orders(7, "s2")


@pytest.mark.parametrize("seconds", [1, 2, 5, 60, 600])
@pytest.mark.parametrize("seed", range(5))
def test_there_is_a_kill_a_second_and_some_of_everything(seed: int, seconds: int) -> None:
    """Kills are never more than two stretches apart, and no kind is left out of a short run."""
    blows = draw_blows(seed, seconds, 2)
    kills = [blow.at for blow in blows if blow.kind is Kind.KILL]
    assert len(kills) >= seconds
    assert all(after - before < 2 for before, after in pairwise(kills))
    assert {blow.kind for blow in blows} == set(Kind)
    assert blows == sorted(blows, key=lambda blow: blow.at)
    assert all(0 <= blow.at < seconds for blow in blows)


def test_a_pause_outlives_a_lease() -> None:
    """Otherwise nobody else would take the runs over."""
    pauses = [blow for blow in draw_blows(1, 600, 2) if blow.kind is Kind.PAUSE]
    assert pauses
    assert all(blow.lasts > 2 for blow in pauses)


def test_the_text_of_a_script_is_the_script() -> None:
    """It is a run's prompt, and what the model makes of it must be what was meant."""
    scripts = [order.script for order in orders(1, "s1")]
    assert [Script.parse(script.text) for script in scripts] == scripts
    assert len({script.tag for script in scripts}) == 300


def test_everything_that_can_be_asked_for_is() -> None:
    """Every tool, stumbles, breaks and cancels are all there in a minute's worth of runs."""
    drawn = orders(1, "s1")
    turns = [turn for order in drawn for turn in order.script.turns]
    assert {step.tool for turn in turns for step in turn.steps} == set(TOOLS)
    assert {turn.stumbles for turn in turns} == {True, False}
    assert {order.script.ending for order in drawn} == {"done", "broken"}
    assert {order.cancel_after is None for order in drawn} == {True, False}
