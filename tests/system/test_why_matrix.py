"""Whatever happens to a run, wherever its execution is: it has one end, and the right one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack

import attrs
import pytest

from hango.domain import Run, RunState
from hango.store.invariants import check
from hango.testing import FakeProvider
from hango.testing.plugin import LeaseClock, SeededTenant, sql
from hango.testing.workers import Worker

from support.journal_plugin import asked, said
from support.outcome_matrix import EXECUTED, Cause, End, Phase, Row, StopPoints, read_table
from support.workers import NEVER, SETTINGS, TICKING, until

_DEADLINE = 60.0  # seconds an execution may take: less than a lease that nobody renews
_AWAY = 10.0  # seconds
# This one compares what a lease statement was told with the time of the server itself.
_OF_TWO_CLOCKS = {"last_words"}
_VICTIM = attrs.evolve(SETTINGS, workers=len(EXECUTED), drain_timeout=0.0, tool_timeout=NEVER)


@attrs.frozen
class Play:
    """A run for each phase, and what happens to all of them.

    Attributes:
        runs: of the phases that are reached.
    """

    world: SeededTenant
    clock: LeaseClock
    row: Row
    stops: StopPoints = attrs.field(factory=StopPoints)
    provider: FakeProvider = attrs.field(factory=lambda: FakeProvider(lambda it: said(*asked(it))))
    runs: dict[Phase, Run] = attrs.field(factory=dict)

    async def queue(self, phase: Phase) -> None:
        """Queue the run of a phase, in a session of its own."""
        self.runs[phase] = await self.world.run(await self.world.session(), f"{phase.name} look")

    async def perform(self) -> None:
        """Let it happen, to one process; another one is there, and healthy, before anybody goes on."""
        late = _DEADLINE if Cause.DEADLINE in self.row.whys else NEVER
        settings = attrs.evolve(_VICTIM, run_deadline=late)
        stopping = self.stops.model(self.provider)
        for phase in EXECUTED:
            await self.queue(phase)
        async with AsyncExitStack() as processes, AsyncExitStack() as away:
            victim = self.world.worker(stopping, self.stops.tool, settings=settings)
            worker = await processes.enter_async_context(victim)
            await self.stops.all_stopped.wait()
            await self.queue(Phase.QUEUED)
            await self.happen(worker, away)
            peer = self.world.worker(self.provider, self.stops.tool, settings=TICKING)
            await processes.enter_async_context(peer)
            await self.clock.settle()
            self.stops.go_on.set()
            await self.clock.settle()
            await self.clock.advance(_AWAY if Cause.AWAY in self.row.whys else 0)
            await away.aclose()
            await self.finish()

    async def happen(self, worker: Worker, away: AsyncExitStack) -> None:
        """Let everything happen, and be heard of, but by the executions."""
        if Cause.DEADLINE in self.row.whys:
            await self.clock.advance(_DEADLINE - 1)
        for why in self.row.whys:
            match why:
                case Cause.CANCEL:
                    for run in self.runs.values():
                        await self.world.runs.cancel(self.world.scope(), run.id)
                case Cause.DRAIN:
                    worker.drain.set()
                case Cause.DEADLINE:
                    await self.clock.advance(1)
                case Cause.LEASE:
                    await self.clock.advance(_VICTIM.lease_ttl + 1)
                    await self.world.queue().sweep()
                case Cause.AWAY:
                    self.stops.answers_lost = True
                    await away.enter_async_context(worker.cut_off())
            await self.clock.settle()

    async def finish(self) -> None:
        """Wait until all runs have ended, and another one in the session of each."""
        async with self.clock.autojump():
            await until(self.world, list(self.runs.values()))
            sessions = [
                await self.world.sessions.get(self.world.scope(), run.session_id)
                for run in self.runs.values()
            ]
            after = [await self.world.run(session, "AFTER look") for session in sessions]
            ended = await until(self.world, after)
        assert {run.state for run in ended} == {RunState.SUCCEEDED}

    async def ends(self) -> Mapping[Phase, End]:
        """Tell what came of the runs."""
        asked_for = Counter(asked(request)[0][0] for request in self.provider.requests)
        partial = await sql(self.world.pool, "select run_id from messages where partial")
        kept = {row["run_id"] for row in partial}
        ended = {phase: await self.world.reload(run) for phase, run in self.runs.items()}
        return {
            phase: End(
                run.state,
                run.error.code if run.error else None,
                self.stops.taken_back[run.id],
                asked_for[phase.name],
                run.id in kept,
            )
            for phase, run in ended.items()
        }


@pytest.mark.rule(4)
@pytest.mark.rule(5)
@pytest.mark.rule(7)
@pytest.mark.rule(10)
@pytest.mark.rule(11)
@pytest.mark.rule(16)
@pytest.mark.parametrize("row", read_table(), ids=str)
async def test_every_run_ends_as_it_must(
    world: SeededTenant, lease_clock: LeaseClock, monkeypatch: pytest.MonkeyPatch, row: Row
) -> None:
    """D03, D09, D17: whatever else happens then; nothing is doubled, and its session goes on."""
    play = Play(world, lease_clock, row)
    play.stops.stand_in(monkeypatch)
    await play.perform()
    assert await play.ends() == row.ends
    assert play.provider.complaints == []
    assert [found for found in await check(world.pool) if found.check not in _OF_TWO_CLOCKS] == []
