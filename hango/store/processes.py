"""The processes that use a database: who they are, and whether they are alive.

A process that executes runs has the id that its runs have as ``owner_id``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib import metadata
from uuid import UUID

import attrs

from hango.db.pool import Pool
from hango.db.queries import QUERIES, Row

BEAT_PROCESS = QUERIES["beat_process"]
END_PROCESS = QUERIES["end_process"]
LIST_PROCESSES = QUERIES["list_processes"]

BEAT_INTERVAL = 10.0  # seconds
_GONE_AFTER = timedelta(seconds=3 * BEAT_INTERVAL)


@attrs.frozen
class Process:
    """This process.

    Attributes:
        id: drawn anew at each start.
        role: of `hango serve`, or the name of another command.
        workers: runs it executes at once; 0 for none.
    """

    id: UUID
    role: str
    workers: int
    host: str = attrs.field(factory=socket.gethostname)
    pid: int = attrs.field(factory=os.getpid)


@attrs.frozen
class SeenProcess:
    """A process as its row says.

    Attributes:
        running: runs it executes now.
        ended_at: when it ended in order; None if it has not, or died.
        alive: whether its last beat is recent.
    """

    id: UUID
    host: str
    pid: int
    role: str
    version: str
    workers: int
    running: int
    started_at: datetime
    beat_at: datetime
    ended_at: datetime | None
    alive: bool


@attrs.frozen
class LiveRuns:
    """How many runs of a tenant are in a lane, in one state."""

    tenant_id: UUID
    lane: str
    state: str
    runs: int


@attrs.define
class Processes:
    """The processes of one database."""

    _pool: Pool

    async def beat(self, process: Process) -> Sequence[LiveRuns]:
        """Say that *process* is alive; return the runs that are queued or running anywhere.

        Raises:
            StoreUnavailable: no database.
        """
        found = await self._pool.write(
            BEAT_PROCESS,
            process_id=process.id,
            host=process.host,
            pid=process.pid,
            role=process.role,
            version=metadata.version("hango"),
            workers=process.workers,
        )
        return [LiveRuns(row["tenant_id"], row["lane"], row["state"], row["runs"]) for row in found]

    async def end(self, process: Process, *, deadline: float) -> None:
        """Say that *process* ended in order, within *deadline* seconds.

        Raises:
            StoreUnavailable: no database.
        """
        await self._pool.write(END_PROCESS, deadline=deadline, process_id=process.id)

    async def list(self, *, hours: float = 24.0) -> Sequence[SeenProcess]:
        """Return those that were alive within *hours*, the latest start first."""
        return [_seen(row) for row in await self._pool.rows(LIST_PROCESSES, hours=hours)]


def _seen(row: Row) -> SeenProcess:
    fields = {name: row[name] for name in attrs.fields_dict(SeenProcess) if name != "alive"}
    recent = row["listed_at"] - row["beat_at"] < _GONE_AFTER
    return SeenProcess(**fields, alive=recent and row["ended_at"] is None)
