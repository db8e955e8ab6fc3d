"""What the tests of the embedded Postgres share: a folder for it, other processes, questions to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import attrs
import pytest

from hango.embedded import embedded_postgres
from hango.embedded.paths import Folders, locate
from hango.embedded.postmaster import Postmaster, find_postmaster, stop
from hango.errors import EmbeddedPostgresError

PEER = Path(__file__).parent / "programs" / "hold_postgres.py"
# a test server may lose everything in a power cut
FAST = {"fsync": "off", "max_connections": "40"}


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder directly below the system's, where the server's user may go, whoever runs this."""
    folder = Path(tempfile.mkdtemp(prefix="hango-embedded-")).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for pid_file in folder.rglob("postmaster.pid"):
            stop(pid_file.parent)
        shutil.rmtree(folder)


@attrs.define
class Holder:
    """Another process that uses the server.

    Attributes:
        dsn: what it was given; empty until `wait`.
    """

    process: subprocess.Popen[str]
    dsn: str = ""

    def wait(self) -> Holder:
        """Wait until it has the server."""
        assert self.process.stdout
        self.dsn = self.process.stdout.readline().strip()
        assert self.dsn, "the other process got no server"
        return self

    def leave(self) -> None:
        """Let it go, and wait until it has gone."""
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        """Kill it without a chance to leave."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def holders(data_dir: Path, count: int = 1) -> Iterator[list[Holder]]:
    """Start *count* processes at once; they have not got the server yet."""
    command = [
        sys.executable,
        str(PEER),
        str(data_dir),
        *(f"{name}={value}" for name, value in FAST.items()),
    ]
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(count)
        ]
        try:
            yield [Holder(process) for process in processes]
        finally:
            for process in processes:
                process.kill()


def ask(dsn: str, statement: str) -> object:
    """Run one statement; return the first value of its answer."""

    async def unit() -> object:
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(unit())


def running(data_dir: Path) -> Postmaster | None:
    """Return the server of *data_dir*, if it runs."""
    return find_postmaster(folders_of(data_dir).cluster)


def folders_of(data_dir: Path) -> Folders:
    """Return the layout of *data_dir*."""
    return locate(data_dir)


def kill_server(data_dir: Path) -> int:
    """Kill the server as a power cut would; return its process's number, once it is gone."""
    server = running(data_dir)
    assert server
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: running(data_dir) is None)
    return server.pid


def until(condition: Callable[[], object]) -> None:
    """Wait for another process to have got where *condition* is true."""
    given_up = time.monotonic() + 60  # not to hang for ever when something is broken
    while not condition():
        assert time.monotonic() < given_up, "what was waited for does not happen"
        os.sched_yield()


def refused(data_dir: Path, bindir: Path | None = None) -> str:
    """Return why there is no server in *data_dir*."""
    with pytest.raises(EmbeddedPostgresError) as caught, embedded_postgres(data_dir, bindir, FAST):
        raise AssertionError
    return str(caught.value)
