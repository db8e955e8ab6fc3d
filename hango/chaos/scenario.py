"""The scenario: apply load, inject faults, wait for all runs to finish, check the invariants.

Nesting order is shutdown order: whatever happens, no process that it started is left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import trio

from hango.chaos import checks
from hango.chaos.faults import Fault, FaultKind, draw_faults
from hango.chaos.journal import Journal
from hango.chaos.load import Load
from hango.chaos.postgres import PrivatePostgres, cut_listeners
from hango.chaos.workers import LEASE, Workers
from hango.db.migrations import migrate
from hango.db.pool import Pool, open_pool
from hango.errors import StoreUnavailable
from hango.store import invariants

# Seconds; a run that lost its worker often waits a minute before it is claimed again.
_SETTLE_TIMEOUT = 180.0
_POLL_INTERVAL = 0.25  # seconds
_REPORT_INTERVAL = 5.0  # seconds


@attrs.frozen
class Options:
    """What is asked for.

    Attributes:
        seconds: how long faults are injected.
        workers: how many processes.
    """

    seed: int
    seconds: float
    workers: int


@attrs.frozen
class Result:
    """What happened, in numbers, and every violation in words."""

    runs: int
    kills: int
    pauses: int
    restarts: int
    reclaims: int
    redriven_turns: int
    rejected_writes: int
    violations: Sequence[str]


async def run_scenario(
    options: Options, folder: Path, postgres: PrivatePostgres, report: Callable[[str], None]
) -> Result:
    """Run a scenario, and return what happened.

    Args:
        options: which scenario.
        folder: for the journal and the logs of the workers.
        postgres: an empty one, with no other users.
        report: called with each line of progress.
    """
    await migrate(postgres.dsn)
    journal = Journal(folder / "journal")
    workers = Workers.of(options.workers, folder, postgres.dsn, journal.path)
    async with open_pool(postgres.dsn) as pool, trio.open_nursery() as nursery:
        load = await Load.prepare(pool, options.seed)
        scenario = Scenario(pool, workers, load, postgres, report)
        nursery.start_soon(workers.run)
        await workers.wait_until_ready()
        report(f"{options.workers} workers are at work")
        faults = draw_faults(options.seed, options.seconds, LEASE)
        await scenario.inject_faults(faults, options.seconds)
        await scenario.settle()
        problems = await workers.close()
        result = await scenario.check(journal, problems)
        nursery.cancel_scope.cancel()
    return result


@attrs.define(eq=False)
class Scenario:
    """The parts of a scenario, and its steps.

    Attributes:
        injected: how many faults of each kind there were.
    """

    pool: Pool
    workers: Workers
    load: Load
    postgres: PrivatePostgres
    report: Callable[[str], None]
    injected: Counter[FaultKind] = attrs.field(factory=Counter)

    async def inject_faults(self, faults: Sequence[Fault], seconds: float) -> None:
        """Apply load and inject *faults*; return after *seconds*, when the last has ended."""
        begin = trio.current_time()
        async with trio.open_nursery() as clients:
            clients.start_soon(self.load.run)
            clients.start_soon(self._report_progress)
            async with trio.open_nursery() as nursery:
                for fault in faults:
                    await trio.sleep_until(begin + fault.at)
                    nursery.start_soon(self._inject, fault, clients)
                await trio.sleep_until(begin + seconds)
            clients.cancel_scope.cancel()

    async def _inject(self, fault: Fault, clients: trio.Nursery) -> None:
        match fault.kind:
            case FaultKind.KILL:
                await self.workers.kill(fault.pick)
            case FaultKind.PAUSE:
                await self.workers.pause(fault.pick, fault.duration)
            case FaultKind.DRAIN:
                await self.workers.drain(fault.pick)
            case FaultKind.RESTART:
                await self.postgres.restart(fault.duration, crash=bool(fault.pick % 2))
            case FaultKind.CUT_LISTENERS:
                await self._cut_listeners(fault, clients)
        self.injected[fault.kind] += 1

    async def _cut_listeners(self, fault: Fault, clients: trio.Nursery) -> None:
        try:
            await cut_listeners(self.pool)
        except StoreUnavailable:
            return  # Postgres restarts, and no connection listens anyway
        await self.load.request_one(clients, fault.pick)

    async def _report_progress(self) -> None:
        begin = trio.current_time()
        while True:
            await trio.sleep(_REPORT_INTERVAL)
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.injected.items()))
            self.report(f"{trio.current_time() - begin:.0f} s: {len(self.load.scripts)} runs; {counts}")

    async def settle(self) -> None:
        """Wait, without faults, until all runs have ended; at most `_SETTLE_TIMEOUT`."""
        with trio.move_on_after(_SETTLE_TIMEOUT):
            reported_at = -math.inf
            while live := await self.load.live():
                if trio.current_time() > reported_at + _REPORT_INTERVAL:
                    self.report(f"no more faults: {live} runs have not ended")
                    reported_at = trio.current_time()
                await trio.sleep(_POLL_INTERVAL)

    async def check(self, journal: Journal, problems: Sequence[str]) -> Result:
        """Check the database and the journal."""
        entries, runs = journal.read(), await self.load.runs()
        records = checks.collect_records(runs, await self.load.messages(), entries)
        broken = [
            f"{v.check}: session {v.session_id} run {v.run_id}: {v.what}"
            for v in await invariants.check(self.pool)
        ]
        return Result(
            runs=len(runs),
            kills=self.injected[FaultKind.KILL],
            pauses=self.injected[FaultKind.PAUSE],
            restarts=self.injected[FaultKind.RESTART],
            reclaims=checks.reclaims(entries),
            redriven_turns=sum(record.replayed_turns for record in records),
            rejected_writes=checks.rejected_writes(entries),
            violations=[*broken, *checks.check_runs(records), *problems],
        )
