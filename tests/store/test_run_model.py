"""Races found by search: whatever users and owners do with runs comes to what a model says.

Each time the same sequences are tried.  ``HANGO_TEST_RUN_MODEL=2000`` asks for that many, others each
time; ``--hypothesis-seed`` says which::

    HANGO_TEST_RUN_MODEL=2000 make test ARGS="tests/store/test_run_model.py --hypothesis-seed=7"
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from hango.testing.plugin import LeaseClock, SeededTenant

from support.run_model.choices import EVENTS, KINDS, OPERATIONS, chosen, operation, overtaking
from support.run_model.operations import SESSIONS, Drift
from support.run_model.side_by_side import Gate, Trial

COUNT = os.environ.get("HANGO_TEST_RUN_MODEL")

NUMBERS = st.integers(0, 100)
LINES = st.lists(st.tuples(st.sampled_from(OPERATIONS), NUMBERS), min_size=1, max_size=2)
GATES: st.SearchStrategy[Gate | None] = st.none() | st.tuples(
    st.sampled_from(["sessions", "runs"]), st.sampled_from(SESSIONS)
)


class Alone(RuleBasedStateMachine):
    """One thing after the other.

    A kind and a number stand for what is likely then; what it was, the story of a failure tells.
    """

    trial: ClassVar[Trial]

    def __init__(self) -> None:
        super().__init__()
        trio.from_thread.run(self.trial.begin)

    @rule(kind=st.sampled_from(OPERATIONS * 5 + EVENTS * 5), number=NUMBERS)
    def do(self, kind: str, number: int) -> None:
        """Do something, or let something happen."""
        trio.from_thread.run(self.trial.play, chosen(self.trial.model, kind, number))

    def teardown(self) -> None:
        """Do what is left."""
        trio.from_thread.run(self.trial.finish)


class AtOnce(Alone):
    """Also two or three things, or pairs of things, at the same moment."""

    @rule(lines=st.lists(LINES, min_size=2, max_size=3), gate=GATES)
    def race(self, lines: list[list[tuple[str, int]]], gate: Gate | None) -> None:
        """Do them; they are chosen by what is known before."""
        ops = [[operation(self.trial.model, *drawn) for drawn in line] for line in lines]
        trio.from_thread.run(partial(self.trial.do, *ops, gate=gate))

    @rule(kind=st.sampled_from(KINDS), numbers=st.lists(NUMBERS, min_size=2, max_size=3), gate=GATES)
    def pile_up(self, kind: str, numbers: list[int], gate: Gate | None) -> None:
        """Do several things of one kind."""
        ops = [[operation(self.trial.model, kind, number)] for number in numbers]
        trio.from_thread.run(partial(self.trial.do, *ops, gate=gate))

    @rule(number=NUMBERS, gated=st.booleans())
    def overtake(self, number: int, *, gated: bool) -> None:
        """Let somebody take a run over while its owner, whose lease has lapsed, writes."""
        trio.from_thread.run(self.trial.play, Drift(11.0))
        session, ops = overtaking(self.trial.model, number)
        gate: Gate | None = ("sessions", session) if gated else None
        trio.from_thread.run(partial(self.trial.do, *ops, gate=gate))


Search = Callable[[type[Alone], int, LeaseClock], Awaitable[None]]


@pytest.fixture
async def search(database: str, world: SeededTenant, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Have what tries a number of sequences, or as many as are asked for."""

    async def search(machine: type[Alone], count: int, clock: LeaseClock) -> None:
        how = settings(
            max_examples=int(COUNT or count),
            derandomize=COUNT is None,
            database=None,
            deadline=None,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        )
        async with Trial.opened(database, world, clock, monkeypatch) as machine.trial:
            run = partial(run_state_machine_as_test, machine, settings=how)
            try:
                await trio.to_thread.run_sync(run)
            except Flaky:  # a race that came out wrong, and then did not again
                raise machine.trial.failures[-1] from None

    return search


@pytest.mark.rule(3)
async def test_what_is_done_one_after_the_other_comes_to_what_the_model_says(
    search: Search, lease_clock: LeaseClock
) -> None:
    """D05: by three owners and a user, on time or late; who is late changes not a byte."""
    await search(Alone, 70, lease_clock)


@pytest.mark.rule(2)
async def test_what_is_done_at_once_comes_to_what_some_order_comes_to(
    search: Search, lease_clock: LeaseClock
) -> None:
    """D05: however statements meet, wait for each other, and go on with what has changed meanwhile."""
    await search(AtOnce, 50, lease_clock)
