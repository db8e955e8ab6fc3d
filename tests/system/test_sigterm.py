"""SIGTERM to a real process at any point: its exit code, what it leaves, and how a peer goes on."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest

from hango.db.migrations import _LOCK
from hango.domain import Run, RunState
from hango.store.invariants import check

from support.journal_plugin import TOOLS, model
from support.locks import row_held, uncommitted, until_waiting
from support.processes import Running
from support.worker_processes import WorkerProcesses
from support.workers import started_worker, until

KILLED, DRAINED, AT_ONCE = -signal.SIGTERM, 0, 128 + signal.SIGTERM
QUEUED, RUNNING, SUCCEEDED = RunState.QUEUED, RunState.RUNNING, RunState.SUCCEEDED
NO_TIME = {"HANGO_DRAIN_TIMEOUT": "0s"}
# Nothing lapses by itself while a test looks.
PATIENT = {"HANGO_RUN_LEASE_TTL": "1m"}


@attrs.frozen
class Moment:
    """When the signal comes, and what the process makes of it.

    Attributes:
        script: of the run, as `support.journal_plugin` reads it; the rest of the prompt.
        code: the exit code.
        left: the run's state once the process has ended, and how many of its turns are finished.
        again: what is done again by a peer, because it was in its middle.
        settings: of the process.
        twice: a second signal comes while the process drains.
    """

    when: str
    script: str
    code: int
    left: tuple[RunState, int]
    again: Collection[str] = ()
    settings: Mapping[str, str] = attrs.field(factory=dict)
    twice: bool = False

    def __str__(self) -> str:
        """Name it, for the list of tests."""
        return f"{self.when}{', twice' * self.twice}{', no time' * (self.settings is NO_TIME)}"


MOMENTS = (
    # before it listens to signals it has nothing to hand over
    Moment("unborn", "note", KILLED, (QUEUED, 0)),
    Moment("migrating", "note", AT_ONCE, (QUEUED, 0)),
    Moment("queued", "note", DRAINED, (QUEUED, 0), settings={"HANGO_RUN_WORKERS": "1"}),
    # what is in its middle is finished if there is time, and done again if there is not
    Moment("streaming", "…note note", DRAINED, (QUEUED, 1)),
    Moment("streaming", "…note note", DRAINED, (QUEUED, 0), ["provider 1"], NO_TIME),
    Moment("in tool", "hold note", DRAINED, (QUEUED, 1)),
    Moment("in tool", "hold note", DRAINED, (QUEUED, 0), ["hold 1"], NO_TIME),
    Moment("final write", "", DRAINED, (SUCCEEDED, 1)),
    Moment("final write", "", DRAINED, (SUCCEEDED, 1), settings=NO_TIME),
    # nothing is finished and nothing released, but what the database was told to do, it does
    Moment("streaming", "…note note", AT_ONCE, (RUNNING, 0), ["provider 1"], twice=True),
    Moment("in tool", "hold note", AT_ONCE, (RUNNING, 0), ["hold 1"], twice=True),
    Moment("final write", "", AT_ONCE, (SUCCEEDED, 1), twice=True),
)


@attrs.frozen
class Play:
    """A process, its run, and the moment."""

    fleet: WorkerProcesses
    moment: Moment
    run: Run

    @asynccontextmanager
    async def in_the_way(self) -> AsyncIterator[None]:
        """Sit on what the process has to wait for at that moment."""
        pool = self.fleet.world.pool
        async with AsyncExitStack() as stack:
            if self.moment.when == "migrating":
                lock = uncommitted(pool, f"select pg_advisory_xact_lock({_LOCK})")
                await stack.enter_async_context(lock)
            if self.moment.when == "final write":
                await stack.enter_async_context(row_held(pool, "sessions", self.run.session_id))
            yield

    async def reach(self, process: Running) -> None:
        """Wait for the moment."""
        match self.moment.when:
            case "queued" | "streaming" | "in tool":
                await process.line("holding")
            case "migrating" | "final write":
                await until_waiting(self.fleet.world.pool)

    async def end(self, process: Running) -> int:
        """Send the signal, or both, and return the exit code; what can be finished then is."""
        async with self.in_the_way():
            await self.reach(process)
            process.signal(signal.SIGTERM)
            if self.moment.twice:
                await process.line("a second signal ends the process at once")
                process.signal(signal.SIGTERM)
                return await process.ended()
            if self.moment.code == DRAINED:
                await process.line("draining")
        if self.moment.settings is not NO_TIME:
            self.fleet.let_go()
        return await process.ended()

    def expected(self) -> Mapping[str, int]:
        """Tell how often everything has happened in the end."""
        words = self.moment.script.split()
        once = [f"provider {turn}" for turn in range(1, len(words) + 2)]
        once += [f"{word.removeprefix('…')} {turn}" for turn, word in enumerate(words, 1)]
        return {mark: 1 + (mark in self.moment.again) for mark in once}

    def happened(self) -> Mapping[str, int]:
        """Tell how often everything did happen, for this run."""
        return {
            mark.replace(f" {self.run.id}", "").replace(" run", ""): times
            for mark, times in self.fleet.happened().items()
            if str(self.run.id) in mark or " run " in mark
        }


async def finish(fleet: WorkerProcesses, patch: pytest.MonkeyPatch, *runs: Run) -> list[Run]:
    """Let a peer execute what there is to execute; a lease that still holds has lapsed by now."""
    patch.setenv("DURABLE_JOURNAL", str(fleet.journal))
    fleet.let_go()
    for run in runs:
        if (await fleet.world.reload(run)).state is RUNNING:
            await fleet.world.lapse(run)
    async with started_worker(fleet.world, {"scripted": model()}, *TOOLS):
        return await until(fleet.world, runs)


@pytest.mark.rule(8)
@pytest.mark.parametrize("moment", MOMENTS, ids=str)
async def test_nothing_is_lost_and_nothing_is_done_twice(
    fleet: WorkerProcesses, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    """D16, D17: the exit code tells how it ended, the run is where it must be, and a peer ends it."""
    others = []
    if moment.when == "queued":  # behind one that takes the only slot
        others = [await fleet.world.run(await fleet.world.session(), "other hold note")]
    run = await fleet.world.run(await fleet.world.session(), f"run {moment.script}")
    play = Play(fleet, moment, run)
    async with fleet.worker(**PATIENT, **moment.settings) as process:
        assert await play.end(process) == moment.code
    if moment.left[0] is SUCCEEDED:  # by then the database may still be at it
        await until(fleet.world, [run])
    left = await fleet.world.reload(run)
    assert (left.state, left.resume_turn) == moment.left
    assert left.reclaims == 0
    ended = await finish(fleet, monkeypatch, run, *others)
    assert {it.state for it in ended} == {SUCCEEDED}
    assert play.happened() == play.expected()
    assert list(await check(fleet.world.pool)) == []


@pytest.mark.rule(7)
@pytest.mark.rule(8)
@pytest.mark.parametrize("noted", [1, 6, 14])
async def test_a_drain_under_load_repeats_nothing(
    fleet: WorkerProcesses, monkeypatch: pytest.MonkeyPatch, noted: int
) -> None:
    """D16: wherever eight runs are when the signal comes, each turn is bought, and done, once."""
    runs = [
        await fleet.world.run(await fleet.world.session(), f"run-{number} note note note")
        for number in range(8)
    ]
    async with fleet.worker(**PATIENT) as process:
        for _ in range(noted):
            await process.line("noted")
        process.signal(signal.SIGTERM)
        assert await process.ended() == DRAINED
    left = [await fleet.world.reload(run) for run in runs]
    assert RUNNING not in {run.state for run in left}
    ended = await finish(fleet, monkeypatch, *runs)
    assert {(run.state, run.iterations, run.reclaims) for run in ended} == {(SUCCEEDED, 4, 0)}
    happened = fleet.happened()
    assert set(happened.values()) == {1}
    assert len(happened) == 8 * (4 + 3)
    assert list(await check(fleet.world.pool)) == []
