"""Real hango processes for tests: started like a user's, with settings of their own, read by line."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import trio

from hango.embedded import embedded_postgres

# Warnings are errors, as in the tests; trio-asyncio has one on Python 3.12 and 3.13.
_WARNINGS = ("-W", "error", "-W", "ignore:'AbstractChildWatcher' is deprecated:DeprecationWarning")
COMMAND = (sys.executable, *_WARNINGS, "-m", "hango.cli")
# Undoes what nohup does to its children, where the tests themselves were started by it.
_UNDO = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
_HEARING_HANGUPS = (sys.executable, "-c", _UNDO)
_LONGEST = 60.0  # seconds; a process that says nothing for so long hangs
# A test's server may lose everything in a power cut.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@contextmanager
def data_folder() -> Iterator[tuple[Path, str]]:
    """Have a data folder whose server runs already; yields it, and the URL of its database.

    Blocks: for fixtures, not within trio.
    """
    folder = Path(tempfile.mkdtemp(prefix="hango-processes-"))
    try:
        with embedded_postgres(folder, settings=_FAST) as dsn:
            yield folder, dsn
    finally:
        shutil.rmtree(folder)


_SETTINGS = ("HANGO_", "OPENAI_", "ANTHROPIC_", "OTEL_")


def environment(**settings: str) -> Mapping[str, str]:
    """Return this process's environment with these settings, and no others of hango."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_SETTINGS) and name.lower() != "http_proxy"
    }
    return kept | {"PYTHONUNBUFFERED": "1"} | settings


async def until(event: trio.Event) -> None:
    """Wait for what a process is to bring about; fails if that takes too long."""
    with trio.fail_after(_LONGEST):
        await event.wait()


@attrs.frozen
class Finished:
    """What a command came to."""

    code: int
    out: str
    err: str


async def hango(*arguments: str, **settings: str) -> Finished:
    """Run a command to its end."""
    with trio.fail_after(_LONGEST):
        done = await trio.run_process(
            [*COMMAND, *arguments],
            env=environment(**settings),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


@attrs.define
class Running:
    """A process that runs.

    Attributes:
        lines: all it has said so far, to either stream, in the order it came.
    """

    process: trio.Process
    lines: list[str] = attrs.field(factory=list)
    _rest: bytes = b""

    async def line(self, text: str) -> str:
        """Return the next line that holds *text*; fails when the process ends without one."""
        with trio.fail_after(_LONGEST):
            while True:
                line = await self._next()
                assert line is not None, f"no {text!r} in:\n" + "\n".join(self.lines)
                if text in line:
                    return line

    async def _next(self) -> str | None:
        assert self.process.stdout
        while b"\n" not in self._rest:
            more = await self.process.stdout.receive_some()
            if not more:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        self.lines.append(line.decode())
        return self.lines[-1]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Read what it still says, and return its exit code."""
        with trio.fail_after(_LONGEST):
            while await self._next() is not None:
                pass
            return await self.process.wait()


@asynccontextmanager
async def started(*arguments: str, ignoring: str = "", **settings: str) -> AsyncIterator[Running]:
    """Start a command; killed if it still runs when the block is left.

    Args:
        arguments: of the command.
        ignoring: signals that it is started with ignored, such as ``INT HUP``.
        settings: of its environment.
    """
    shell = ("/bin/sh", "-c", f'trap "" {ignoring}; exec "$@"', "sh") if ignoring else ()
    hears = _HEARING_HANGUPS if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else ()
    process = await trio.lowlevel.open_process(
        [*hears, *shell, *COMMAND, *arguments],
        env=environment(**settings),
        stdin=None,
        stdout=-1,
        stderr=-2,
    )
    running = Running(process)
    try:
        yield running
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(_LONGEST):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if process.stdout:
                await process.stdout.aclose()
