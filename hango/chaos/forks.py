"""Where worker processes come from: a process that has imported hango, and forks one for each order.

One rule: what is forked is ``hango serve``, with a number, a log and an end of its own; only its
imports were done before.  They take a second of a processor, and when a worker is killed each second,
a small machine would do little else.  The orders come from standard input, and when that ends, as it
does when whoever gave them dies, all workers end with it.

An order is a line, the file to log to; the answers are lines, ``started 123`` and ``ended 123 -9``.
`Forks` is the other end.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

# By name: what hango is tested with must not know the command line otherwise than by starting it.
_COMMAND = ("hango.cli", "serve")
_PRELOADED = ("hango.cli", "hango.chaos.plugin")
_LOOK_EVERY = 0.02  # seconds between two looks at who has ended


def main() -> None:
    """Fork workers until standard input ends; return at once in each of them, having served."""
    for module in _PRELOADED:
        importlib.import_module(module)
    alive: set[int] = set()
    orders = b""
    while True:
        if select.select([0], [], [], _LOOK_EVERY)[0]:
            more = os.read(0, 4096)
            if not more:
                break
            *lines, orders = (orders + more).split(b"\n")
            for log in lines:
                pid = os.fork()
                if not pid:
                    return _serve(log)
                alive.add(pid)
                _tell(f"started {pid}")
        for pid, code in _ended(alive):
            alive.remove(pid)
            _tell(f"ended {pid} {code}")
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    return None


def _ended(alive: set[int]) -> list[tuple[int, int]]:
    looks = (os.waitpid(pid, os.WNOHANG) for pid in alive)
    return [(pid, os.waitstatus_to_exitcode(status)) for pid, status in looks if pid]


def _tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _serve(log: bytes) -> None:
    """Be a worker: with nothing of the process it was forked from but what that had imported."""
    os.setsid()  # Ctrl-C is for whoever runs the chaos
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 1)
    os.dup2(1, 2)
    module, *words = _COMMAND
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)


# --- the other end --------------------------------------------------------------------------


@attrs.define(eq=False)
class Process:
    """A worker's process.

    Attributes:
        code: what it exited with, or the signal that ended it, negative; None while it lives.
        ended: set once it has ended.
    """

    pid: int
    code: int | None = None
    ended: trio.Event = attrs.field(factory=trio.Event)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@attrs.define(eq=False)
class Forks:
    """Starts workers."""

    _process: trio.Process
    _turn: trio.Lock = attrs.field(factory=trio.Lock)
    _alive: dict[int, Process] = attrs.field(factory=dict)
    _started: list[Process] = attrs.field(factory=list)
    _news: trio.Event = attrs.field(factory=trio.Event)

    async def start(self, log: Path) -> Process:
        """Start one that logs to *log*, a file that is there."""
        async with self._turn:
            assert self._process.stdin  # noqa: S101 - for mypy: it was opened with one
            await self._process.stdin.send_all(os.fsencode(log) + b"\n")
            while not self._started:
                await self._news.wait()
                self._news = trio.Event()
            return self._started.pop()

    async def listen(self) -> None:
        """Take the answers."""
        assert self._process.stdout  # noqa: S101 - for mypy: it was opened with one
        rest = b""
        async for more in self._process.stdout:
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                self._take(*line.split())

    def _take(self, what: bytes, pid: bytes, code: bytes = b"0") -> None:
        if what == b"started":
            process = self._alive[int(pid)] = Process(int(pid))
            self._started.append(process)
            self._news.set()
        else:
            process = self._alive.pop(int(pid))
            process.code = int(code)
            process.ended.set()


@asynccontextmanager
async def open_forks(environment: Mapping[str, str]) -> AsyncIterator[Forks]:
    """Have a process that starts workers in *environment*; none of them outlives the context."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", __name__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    forks = Forks(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forks.listen)
            yield forks
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    await pipe.aclose()
            await process.wait()


if __name__ == "__main__":
    main()
