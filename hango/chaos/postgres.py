"""A Postgres of its own for a test, to stop, crash and start again from outside.

Used by `hango chaos` and by hango's tests of outages.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from hango.db.connections import Connection
from hango.db.pool import Pool
from hango.embedded import embedded_postgres

# A process that crashes has handed its writes to the operating system, on disk or not, so no fsync.
# synchronous_commit stays on: a commit must have reached the operating system.
SETTINGS: Mapping[str, str] = {"fsync": "off"}

_STOP_TIMEOUT = 60.0  # seconds
_PAUSE = 0.02  # seconds between two looks at its files

# `select 1` is the check of a connection that was idle for long.
_CUT_LISTENERS = """
select count(pg_terminate_backend(pid))
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
   and (query ilike 'listen%' or query = 'select 1')
"""


@attrs.frozen
class PrivatePostgres:
    """An embedded server in *data_dir* that runs already.

    Attributes:
        dsn: a superuser's URL.
        bindir: its programs; None finds them.
        settings: given to it at each start.
    """

    data_dir: Path
    dsn: str
    bindir: Path | None = None
    settings: Mapping[str, str] = SETTINGS
    _restarting: trio.Lock = attrs.field(factory=trio.Lock)

    @property
    def pid(self) -> int:
        """The id of its first process, the postmaster."""
        return int(self._pid_file.read_text().split()[0])

    @property
    def _pid_file(self) -> Path:
        return self.data_dir / "postgres" / "postmaster.pid"

    async def stop(self) -> None:
        """End all connections, write everything out, and stop."""
        await self._end(signal.SIGINT)

    async def crash(self) -> None:
        """Stop at once: what is not committed is rolled back by the recovery at the next start."""
        await self._end(signal.SIGQUIT)

    async def start(self) -> None:
        """Start it; returns once it takes connections."""
        await trio.to_thread.run_sync(self._start)

    async def restart(self, seconds_down: float, *, crash: bool) -> None:
        """Stop or crash it, and start it *seconds_down* later.  Not cancelled midway."""
        with trio.CancelScope(shield=True):
            async with self._restarting:
                await (self.crash() if crash else self.stop())
                await trio.sleep(seconds_down)
                await self.start()

    async def _end(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        with trio.fail_after(_STOP_TIMEOUT):
            while self._pid_file.exists():  # noqa: ASYNC110 - another process removes it
                await trio.sleep(_PAUSE)

    def _start(self) -> None:
        # entering starts a server that does not run; leaving does not stop it, as it has other users
        with embedded_postgres(self.data_dir, self.bindir, self.settings):
            pass


async def cut_listeners(pool: Pool) -> None:
    """End every connection that listens: notifications until it is back are lost.

    Raises:
        StoreUnavailable: there is no database.
    """

    async def cut(connection: Connection) -> None:
        await connection.execute(_CUT_LISTENERS)

    await pool.unit(cut)
