"""The private Postgres, and how it is stopped and started from outside.

One rule: it is never anybody's but this chaos run's: an embedded server in a folder of its own.
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

# What a process that dies has written is with the system, whether or not it is on the disk yet; but it
# must have been written, so synchronous_commit stays on.
SETTINGS: Mapping[str, str] = {"fsync": "off"}

_LONGEST_STOP = 60.0  # seconds
_PAUSE = 0.02  # seconds between two looks

# A statement of chaos's own: hango has no use for it.  A connection that has been silent for long was
# asked whether it lives, and that is then the last thing it did.
_CUT_LISTENERS = """
select count(pg_terminate_backend(pid))
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
   and (query ilike 'listen%' or query = 'select 1')
"""


@attrs.frozen
class Server:
    """A server that runs already, in *data_dir*."""

    data_dir: Path
    bindir: Path | None
    dsn: str
    _turn: trio.Lock = attrs.field(factory=trio.Lock)

    async def restart(self, away: float, *, harshly: bool) -> None:
        """Stop it and, *away* seconds later, start it.  Not to be cancelled: the others need it.

        Args:
            away: seconds.
            harshly: it gets no time to write anything out, and recovers from its log.
        """
        with trio.CancelScope(shield=True):
            async with self._turn:
                os.kill(self._pid(), signal.SIGQUIT if harshly else signal.SIGINT)
                await self._stopped()
                await trio.sleep(away)
                await trio.to_thread.run_sync(self._start)

    def _pid(self) -> int:
        return int(self._pid_file.read_text().split()[0])

    @property
    def _pid_file(self) -> Path:
        return self.data_dir / "postgres" / "postmaster.pid"

    async def _stopped(self) -> None:
        with trio.fail_after(_LONGEST_STOP):
            while self._pid_file.exists():  # noqa: ASYNC110 - another process removes it
                await trio.sleep(_PAUSE)

    def _start(self) -> None:
        # whoever enters starts it where it does not run; leaving, there are others, and it stays
        with embedded_postgres(self.data_dir, self.bindir, SETTINGS):
            pass


async def cut_listeners(pool: Pool) -> None:
    """End every connection that listens: what is rung until they are back is heard by nobody.

    Raises:
        StoreUnavailable: no database.
    """

    async def cut(connection: Connection) -> None:
        await connection.execute(_CUT_LISTENERS)

    await pool.unit(cut)
