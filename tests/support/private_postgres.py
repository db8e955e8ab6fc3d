"""A Postgres of a test's own, to stop, crash and start.

One rule: it is never the one that other tests use.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import psutil
import trio

from hango.embedded import embedded_postgres
from hango.embedded.paths import locate
from hango.embedded.postmaster import find_postmaster, stop
from hango.testing.databases import with_database

# It may lose everything in a power cut, but nothing that is committed when it crashes.
_SETTINGS = {"fsync": "off", "max_connections": "30"}
_LONGEST = 20.0  # seconds
_PAUSE = 0.01  # seconds between two looks at another process


@attrs.frozen
class PrivatePostgres:
    """A server.

    Attributes:
        url: a superuser's, of its maintenance database.
    """

    folder: Path
    url: str

    @property
    def pid(self) -> int:
        """Its process."""
        found = find_postmaster(locate(self.folder).cluster)
        assert found is not None
        return found.pid

    async def stop(self) -> None:
        """Stop it as an operator does."""
        await trio.to_thread.run_sync(stop, locate(self.folder).cluster)

    async def crash(self) -> None:
        """Let it end at once: what is not committed is rolled back by the next start."""
        process = psutil.Process(self.pid)
        process.send_signal(signal.SIGQUIT)
        with trio.fail_after(_LONGEST):
            while _lives(process):  # noqa: ASYNC110 - it is nobody's child
                await trio.sleep(_PAUSE)

    async def start(self) -> None:
        """Start it; whoever made it ends it."""
        await trio.to_thread.run_sync(self._join)

    def _join(self) -> None:
        with embedded_postgres(self.folder, settings=_SETTINGS):
            pass


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """Have a server.  Blocks: for fixtures."""
    folder = Path(tempfile.mkdtemp(prefix="hango-away-"))
    try:
        with embedded_postgres(folder, settings=_SETTINGS) as dsn:
            yield PrivatePostgres(folder, with_database(dsn, "postgres"))
    finally:
        shutil.rmtree(folder)
