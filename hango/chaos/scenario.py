"""The scenario: apply load, inject faults, wait for all runs to finish, check the invariants.

Nesting order is shutdown order: whatever happens, no process that it started is left.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from hango.chaos import checks
from hango.chaos.bad_tenant import BadTenant
from hango.chaos.faults import IN_POSTGRES, Fault, FaultKind, draw_faults
from hango.chaos.journal import Journal, Timeline
from hango.chaos.lateness import Window, find_late
from hango.chaos.load import Load
from hango.chaos.postgres import (
    PrivatePostgres,
    count_live,
    cut_listeners,
    fill_disk,
    take_connections,
)
from hango.chaos.workers import LEASE, Workers
from hango.db.migrations import migrate
from hango.db.pool import Pool, open_pool
from hango.errors import StoreUnavailable
from hango.store import invariants

# Seconds; a run that lost its worker often waits a minute before it is claimed again.
_SETTLE_TIMEOUT = 180.0
_POLL_INTERVAL = 0.25  # seconds
_REPORT_INTERVAL = 5.0  # seconds
_FLOOD_RUNS = 12  # for each second of the scenario, in each of its floods
_TICK, _MAX_LAG = 0.1, 0.5  # seconds between two looks at the clock, and how late one may be


@attrs.frozen
class Options:
    """What is asked for.

    Attributes:
        seconds: how long faults are injected.
        workers: how many processes.
        faults: which kinds are injected.
    """

    seed: int
    seconds: float
    workers: int
    faults: frozenset[FaultKind] = frozenset(FaultKind)


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
    timeline = Timeline(folder / "timeline")
    workers = Workers.of(options.workers, folder, postgres.dsn, journal.path, timeline)
    async with open_pool(postgres.dsn) as pool, trio.open_nursery() as nursery:
        load, bad = await Load.prepare(pool, options.seed), await BadTenant.prepare(pool)
        scenario = Scenario(
            pool, workers, load, bad, postgres, report, timeline, seconds=options.seconds
        )
        nursery.start_soon(workers.run)
        if await workers.wait_until_ready():
            report(f"{options.workers} workers are at work")
            faults = draw_faults(options.seed, options.seconds, LEASE, options.faults)
            await scenario.inject_faults(faults)
            await scenario.settle()
        problems = await workers.close()
        result = await scenario.check(journal, problems)
        nursery.cancel_scope.cancel()
    return result


@attrs.define(eq=False)
class Scenario:
    """The parts of a scenario, and its steps.

    Attributes:
        report: called with each line of progress.
        seconds: how long faults are injected.
        injected: how many faults of each kind there were.
        excused: when no run could go on, for reasons that `lateness` knows.
    """

    pool: Pool
    workers: Workers
    load: Load
    bad: BadTenant
    postgres: PrivatePostgres
    report: Callable[[str], None]
    timeline: Timeline
    seconds: float
    injected: Counter[FaultKind] = attrs.field(factory=Counter)
    excused: list[Window] = attrs.field(factory=list)

    async def inject_faults(self, faults: Sequence[Fault]) -> None:
        """Apply load and inject *faults*; return after `seconds`, when the last has ended."""
        begin = trio.current_time()
        async with trio.open_nursery() as clients:
            clients.start_soon(self.load.run)
            clients.start_soon(self._report_progress)
            clients.start_soon(self._watch_capacity)
            async with trio.open_nursery() as nursery:
                for fault in faults:
                    await trio.sleep_until(begin + fault.at)
                    nursery.start_soon(self._inject, fault, clients)
                await trio.sleep_until(begin + self.seconds)
            clients.cancel_scope.cancel()

    async def _inject(self, fault: Fault, clients: trio.Nursery) -> None:
        with self._timed(fault.kind) as stretch:
            try:
                await self._inject_one(fault, clients)
            except StoreUnavailable:
                return  # another fault was there first
        self.injected[fault.kind] += 1
        if fault.kind in IN_POSTGRES:
            self.excused += stretch

    async def _inject_one(self, fault: Fault, clients: trio.Nursery) -> None:
        match fault.kind:
            case FaultKind.KILL:
                await self.workers.kill(fault.pick)
            case FaultKind.PAUSE:
                await self.workers.pause(fault.pick, fault.duration)
            case FaultKind.DRAIN:
                await self.workers.drain(fault.pick)
            case FaultKind.CUT_LISTENERS:
                await cut_listeners(self.pool)
                await self.load.request_one(clients, fault.pick)
            case FaultKind.BLACKHOLE:
                await self.workers.blackhole(fault.pick, fault.duration)
            case FaultKind.MISBEHAVE | FaultKind.TENANT_FLOOD | FaultKind.WEB_FLOOD:
                await self._inject_bad_tenant(fault)
            case _:
                await self._inject_into_postgres(fault)

    async def _inject_bad_tenant(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.MISBEHAVE:
                await self.bad.misbehave(fault.pick)
            case FaultKind.TENANT_FLOOD:
                await self.bad.flood_queue(round(self.seconds * _FLOOD_RUNS))
            case FaultKind.WEB_FLOOD:
                await self.bad.flood_web(await self.workers.url(), fault.duration)

    async def _inject_into_postgres(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.RESTART:
                await self.postgres.restart(fault.duration, crash=bool(fault.pick % 2))
            case FaultKind.TAKE_CONNECTIONS:
                await take_connections(self.postgres.dsn, fault.duration)
            case FaultKind.FILL_DISK:
                await fill_disk(self.pool, fault.duration)

    @contextmanager
    def _timed(self, kind: FaultKind) -> Iterator[list[Window]]:
        """Note when the block begins and ends; yields what will hold that window."""
        begin, stretch = time.time(), list[Window]()
        try:
            yield stretch
        finally:
            stretch.append(Window(begin, time.time()))
            self.timeline.write(f"{kind} began {time.time() - begin:.2f} s ago and ends")

    async def _watch_capacity(self) -> None:
        """Excuse runs while no worker can work, or the machine is too busy to schedule this task."""
        while True:
            begin = time.time()
            await trio.sleep(_TICK)
            if not self.workers.can_work or time.time() > begin + _TICK + _MAX_LAG:
                self.excused.append(Window(begin, time.time()))

    async def _report_progress(self) -> None:
        begin = trio.current_time()
        while True:
            await trio.sleep(_REPORT_INTERVAL)
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.injected.items()))
            self.report(f"{trio.current_time() - begin:.0f} s: {len(self.load.scripts)} runs; {counts}")

    async def settle(self) -> None:
        """Wait, without faults, until all runs have ended; at most `_SETTLE_TIMEOUT`."""
        with trio.move_on_after(_SETTLE_TIMEOUT):
            await self.bad.cancel_all()
            reported_at = -math.inf
            while live := await count_live(self.pool):
                if trio.current_time() > reported_at + _REPORT_INTERVAL:
                    self.report(f"no more faults: {live} runs have not ended")
                    reported_at = trio.current_time()
                await trio.sleep(_POLL_INTERVAL)

    async def check(self, journal: Journal, problems: Sequence[str]) -> Result:
        """Check the database and the journal."""
        entries, runs = journal.read(), await self.load.runs()
        records = checks.collect_records(runs, await self.load.messages(), entries)
        late = find_late([(record.run, record.script) for record in records], self.excused, LEASE)
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
            violations=[*broken, *checks.check_runs(records), *late, *problems],
        )
