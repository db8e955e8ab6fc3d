"""A claim that is told to a session's actor in the very moment in which the actor gives up waiting."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

import attrs
import pytest
import trio

from hango.domain import RunState
from hango.store.claims import Claim
from hango.store.queue import RunQueue
from hango.testing import FakeProvider
from hango.testing.clock import EPOCH
from hango.testing.plugin import LeaseClock, SeededTenant, sql

from support.workers import TICKING, echo, prompt, started_worker

TELLS = 300
IDLE = 10.0  # seconds of the clock
SETTINGS = attrs.evolve(TICKING, workers=TELLS, session_idle_timeout=IDLE)


class Actors(trio.abc.Instrument):
    """Counts the sessions' actors that are made."""

    def __init__(self) -> None:
        self.made = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Look at a new task."""
        self.made += task.name.startswith("session ")


def hold_answers(monkeypatch: pytest.MonkeyPatch, until: float) -> None:
    """Let every claim commit, and its answer arrive at *until* (trio clock, seconds)."""
    claim_next = RunQueue.claim_next

    async def late(queue: RunQueue, session_id: UUID) -> Claim | None:
        claim = await claim_next(queue, session_id)
        await trio.sleep_until(until)
        return claim

    monkeypatch.setattr(RunQueue, "claim_next", late)


async def ends(world: SeededTenant) -> Counter[tuple[RunState, int, int, datetime | None]]:
    """Count the runs by how they ended, under which claim, how often taken back, and when."""
    rows = await sql(world.pool, "select state, claim_epoch, reclaims, finished_at from runs")
    return Counter((RunState(state), *rest) for state, *rest in rows)


async def test_a_claim_told_at_the_instant_of_passivation_has_an_actor(
    world: SeededTenant, lease_clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 tells, each when its actor gives up: it, or the next one, executes the run at once."""
    provider, actors = FakeProvider(echo), Actors()
    trio.lowlevel.add_instrument(actors)
    async with started_worker(world, provider, settings=SETTINGS):
        sessions = [await world.session() for _ in range(TELLS)]
        for session in sessions:
            await world.run(session, "first")
        await lease_clock.settle()
        assert (provider.calls, actors.made) == (TELLS, TELLS)
        await lease_clock.advance(IDLE / 2)
        hold_answers(monkeypatch, until=IDLE)
        for session in sessions:
            await world.run(session, "second")
        await lease_clock.advance(IDLE / 2)
        assert await ends(world) == {
            (RunState.SUCCEEDED, 1, 0, EPOCH): TELLS,
            (RunState.SUCCEEDED, 1, 0, EPOCH + timedelta(seconds=IDLE)): TELLS,
        }
    assert Counter(map(prompt, provider.requests)) == {"first": TELLS, "second": TELLS}
    assert actors.made > TELLS, "some must come late, or this test shows nothing"
    assert actors.made < 2 * TELLS, "some must come in time, or this test shows nothing"
