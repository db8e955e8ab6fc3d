"""A Postgres of its own for a test, to stop, crash and start again from outside.

Used by `hango chaos` and by hango's tests of outages.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from hango.db.connections import Connection
from hango.db.pool import DEADLINE, Pool, open_pool
from hango.embedded import embedded_postgres
from hango.errors import SessionQueueFull, StoreUnavailable

T = TypeVar("T")

_MAX_CONNECTIONS = 100  # more than the workers of a scenario have
# A process that crashes has handed its writes to the operating system, on disk or not, so no fsync.
# synchronous_commit stays on: a commit must have reached the operating system.
SETTINGS: Mapping[str, str] = {"fsync": "off", "max_connections": str(_MAX_CONNECTIONS)}

_STOP_TIMEOUT = 60.0  # seconds
_PAUSE = 0.02  # seconds between two looks at its files
_RETRY_DELAY = 0.1  # seconds

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


# Statements after which each write of a run fails as on a full disk (SQLSTATE 53100), and back.
_FILL_DISK = """
create function chaos_disk_is_full() returns trigger language plpgsql as $$
begin
    raise exception using errcode = '53100', message = 'could not extend file: No space left on device';
end
$$;
create trigger chaos_disk_is_full before insert or update on runs
    execute function chaos_disk_is_full();
create trigger chaos_disk_is_full before insert or update on messages
    execute function chaos_disk_is_full();
create trigger chaos_disk_is_full before insert or update on tool_effects
    execute function chaos_disk_is_full();
"""
_EMPTY_DISK = "drop function if exists chaos_disk_is_full() cascade"


async def fill_disk(pool: Pool, seconds: float) -> None:
    """Let all writes of runs, messages and tool calls fail for *seconds*, as on a full disk.

    Raises:
        StoreUnavailable: there is no database; nothing was done.
    """
    await _execute(pool, _FILL_DISK)
    try:
        await trio.sleep(seconds)
    finally:
        with trio.CancelScope(shield=True):
            await retry(partial(_execute, pool, _EMPTY_DISK))


async def take_connections(dsn: str, seconds: float) -> None:
    """Take, for *seconds*, every connection that the server has left or that becomes free."""
    end = trio.current_time() + seconds

    async def hold(pool: Pool) -> None:
        while (left := end - trio.current_time()) > 0:
            try:
                await _execute(pool, f"select pg_sleep({left})", deadline=left + _RETRY_DELAY)
            except StoreUnavailable:  # refused, or the server restarts
                await trio.sleep(_RETRY_DELAY)

    async with open_pool(dsn, size=_MAX_CONNECTIONS) as pool, trio.open_nursery() as nursery:
        for _ in range(_MAX_CONNECTIONS):
            nursery.start_soon(hold, pool)


async def cut_listeners(pool: Pool) -> None:
    """End every connection that listens: notifications until it is back are lost.

    Raises:
        StoreUnavailable: there is no database.
    """
    await _execute(pool, _CUT_LISTENERS)


async def count_live(pool: Pool) -> int:
    """Return how many runs have not ended, of all tenants."""

    async def unit(connection: Connection) -> int:
        return int(await connection.fetchval("select count(*) from runs where finished_at is null"))

    return await retry(partial(pool.unit, unit))


async def retry(call: Callable[[], Awaitable[T]]) -> T:
    """Call until the database answers, and has room for a run."""
    while True:
        try:
            return await call()
        except (StoreUnavailable, SessionQueueFull):
            await trio.sleep(_RETRY_DELAY)


async def _execute(pool: Pool, text: str, deadline: float = DEADLINE) -> None:
    async def unit(connection: Connection) -> None:
        await connection.execute(text)

    await pool.unit(unit, deadline=deadline)
