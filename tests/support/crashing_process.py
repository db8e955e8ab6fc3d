"""The life of one process that executes runs: what it serves, what it suffers, and how it is numbered.

Its one rule: it ends by itself, by its fate or once all runs of its session have ended, and what it has
to tell stands in files next to its journal by then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import attrs
import cattrs
import pytest
import trio

from hango.actors import ExecutionBuilder, supervise
from hango.db.pool import Pool, open_pool
from hango.store.queue import RunQueue
from hango.telemetry import names
from hango.testing.plugin import sql

from support.commits import Commit, CommitCounter, Side, intercept_writes
from support.counters import counted
from support.crashing_tools import WITH_HEARTBEAT, CrashingTools, ProcessFault, apply_fault
from support.journal_plugin import journal
from support.workers import new_owner, registry_of

WRITES = ("append", "end_turn", "settle", "release", "begin_call", "finish_call")


@attrs.frozen
class CrashPoint:
    """Where among its commits a process meets a fate."""

    number: int
    side: Side
    fate: ProcessFault = ProcessFault.DIE


@attrs.frozen
class ProcessPlan:
    """What one process is to do, and to suffer.

    Attributes:
        database: its URL.
        session: whose runs it waits for; it serves all there are.
        fates: as `CrashingTools` has them, and `crowd`.
        cut: None for a process that is not cut.
        lease_ttl: seconds.
        deaf_to: a database whose doorbell it listens to instead of its own, while its heartbeats do not
            arrive: that its run has moved on, it learns when it writes.
        again: once a tool lingers, a second supervisor of the same owner begins, which hears.
    """

    database: str
    session: UUID
    journal: str
    fates: dict[str, ProcessFault] = attrs.field(factory=dict)
    crowd: int = 1
    cut: CrashPoint | None = None
    lease_ttl: float = 90.0
    deaf_to: str | None = None
    again: bool = False

    def told(self) -> str:
        """Write it as one line."""
        return json.dumps(_converter.unstructure(self))

    @classmethod
    def read(cls, line: str) -> ProcessPlan:
        """Read what `told` wrote."""
        return _converter.structure(json.loads(line), cls)


_converter = cattrs.Converter()
_converter.register_unstructure_hook(UUID, str)
_converter.register_structure_hook(UUID, lambda value, _: UUID(value))


def run_process(line: str) -> None:
    """Live the life that *line* tells."""
    life = ProcessPlan.read(line)
    os.environ["DURABLE_JOURNAL"] = life.journal
    trio.run(_live, life)
    rejected = {write: counted(names.FENCE_REJECTED, **{names.WRITE: write}) for write in WRITES}
    _file("rejected").write_text(json.dumps({write: n for write, n in rejected.items() if n}))


async def _live(life: ProcessPlan) -> None:
    numbered = CommitCounter(
        _CommitFaults(life.cut), frozenset({"renew_leases"} if life.deaf_to else ())
    )
    async with (
        open_pool(life.database, lease_ttl=life.lease_ttl) as pool,
        open_pool(life.deaf_to or life.database) as heard,
    ):
        with pytest.MonkeyPatch.context() as patch:
            intercept_writes(patch, pool, numbered.send)
            await _Process(life, pool, heard, CrashingTools(pool, dict(life.fates), life.crowd)).serve()


@attrs.frozen
class _CommitFaults:
    """Writes down every commit, and meets the fate of one."""

    cut: CrashPoint | None

    def __call__(self, commit: Commit, side: Side) -> None:
        if side == "after":
            _note(f"{commit.number} {commit.name}")
        if self.cut is not None and (commit.number, side) == (self.cut.number, self.cut.side):
            _note(f"{commit.number} {commit.name} {side}")
            apply_fault(self.cut.fate)


@attrs.frozen
class _Process:
    """What lives.

    Attributes:
        heard: the way to the database whose doorbell it hears.
    """

    life: ProcessPlan
    pool: Pool
    heard: Pool
    body: CrashingTools
    owner: UUID = attrs.field(factory=new_owner)

    async def serve(self) -> None:
        """Execute runs until told to drain, which it is once those of its session have ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._again if self.life.again else self._drain_at_the_end)
            await self._supervise(self.heard, self.body.drain)
            self.body.gone.set()
            if not self.life.again:
                nursery.cancel_scope.cancel()

    async def _drain_at_the_end(self) -> None:
        await self._all_ended()
        self.body.drain.set()

    async def _again(self) -> None:
        """Execute a run whose first execution lingers here, in a tool; that one ends in its middle."""
        await self.body.lingers.wait()
        drain = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._supervise, self.pool, drain)
            await self.body.let_go.wait()
            self.body.drain.set()
            await self._all_ended()
            drain.set()

    async def _supervise(self, heard: Pool, drain: trio.Event) -> None:
        settings = attrs.evolve(WITH_HEARTBEAT, lease_ttl=self.life.lease_ttl)
        registry = registry_of(*self.body.tools)
        await supervise(
            queue=RunQueue(self.pool, self.owner, settings.lease_ttl, max_reclaims=10),
            pool=heard,
            build=ExecutionBuilder(
                {"scripted": self.body.provider}, registry, settings, verifiers=self.body.verifiers
            ).build,
            settings=settings,
            drain=drain,
        )

    async def _all_ended(self) -> None:
        """Wait, by the doorbell, until all runs of the session have ended."""
        run_process = "select from runs where session_id = $1 and finished_at is null"
        async with self.pool.listen() as rings:
            while await sql(self.pool, run_process, self.life.session):
                await anext(rings)


# --- what it leaves -------------------------------------------------------------------------


def _file(kind: str) -> Path:
    return journal().with_suffix(f".{kind}")


def _note(line: str) -> None:
    with _file("commits").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def commits(journal: Path) -> list[str]:
    """Read the commits of a process, number and name, oldest first; the last tells where it was cut."""
    file = journal.with_suffix(".commits")
    return file.read_text("utf-8").splitlines() if file.exists() else []


def rejected(journal: Path) -> Mapping[str, int]:
    """Read how often each write of a process that has ended found its fence closed."""
    counts: Mapping[str, int] = json.loads(journal.with_suffix(".rejected").read_text("utf-8"))
    return counts
