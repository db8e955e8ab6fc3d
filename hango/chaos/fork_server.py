"""Starts worker processes fast: a process that has imported hango forks one for each request.

A worker is ``hango serve`` with a process id, a log and an exit code of its own; only its imports are
done already, which take a second of CPU time.  Killing a worker each second would else leave a small
machine time for nothing but imports.

Requests are lines of standard input, each a JSON array of the file to log to and an object of settings;
the answers are lines ``started 123`` and ``ended 123 -9``.  When standard input ends, as it does when
the requesting process dies, all workers are killed.  `ForkServer` is the client.
"""

from __future__ import annotations

import contextlib
import importlib
import json
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

# By name: this package may not import the command line.
_COMMAND = ("hango.cli", "serve")
_PRELOADED = (
    "hango.cli.commands",
    "hango.serve",
    "hango.chaos.plugin",
    "hango.chaos.misbehaving",
)
_WAIT_INTERVAL = 0.02  # seconds between two looks at which workers have ended


def main() -> None:
    """Fork workers until standard input ends; in a worker, return once it has served."""
    for module in _PRELOADED:
        importlib.import_module(module)
    alive: set[int] = set()
    rest = b""
    while True:
        if select.select([0], [], [], _WAIT_INTERVAL)[0]:
            more = os.read(0, 4096)
            if not more:
                break
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    return _serve(*json.loads(line))
                alive.add(pid)
                _answer(f"started {pid}")
        for pid, code in _ended(alive):
            alive.remove(pid)
            _answer(f"ended {pid} {code}")
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    return None


def _ended(alive: set[int]) -> list[tuple[int, int]]:
    states = (os.waitpid(pid, os.WNOHANG) for pid in alive)
    return [(pid, os.waitstatus_to_exitcode(status)) for pid, status in states if pid]


def _answer(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _serve(log: str, settings: Mapping[str, str]) -> None:
    """Be a worker: keep nothing of the parent process but its imports and environment."""
    os.environ.update(settings)
    os.setsid()  # Ctrl-C is for the process that runs the scenario
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 1)
    os.dup2(1, 2)
    module, *words = _COMMAND
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)


# --- the client -----------------------------------------------------------------------------


@attrs.define(eq=False)
class WorkerProcess:
    """A forked process.

    Attributes:
        code: its exit code, negative for a signal; None while it lives.
        ended: set once it has ended.
    """

    pid: int
    code: int | None = None
    ended: trio.Event = attrs.field(factory=trio.Event)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still lives."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@attrs.define(eq=False)
class ForkServer:
    """Starts workers."""

    _process: trio.Process
    _starting: trio.Lock = attrs.field(factory=trio.Lock)
    _alive: dict[int, WorkerProcess] = attrs.field(factory=dict)
    _started: list[WorkerProcess] = attrs.field(factory=list)
    _answered: trio.Event = attrs.field(factory=trio.Event)

    async def start(self, log: Path, settings: Mapping[str, str]) -> WorkerProcess:
        """Start a worker that logs to *log*, an existing file."""
        async with self._starting:
            assert self._process.stdin  # noqa: S101 - for mypy: it was opened with one
            await self._process.stdin.send_all(json.dumps([str(log), dict(settings)]).encode() + b"\n")
            while not self._started:
                await self._answered.wait()
                self._answered = trio.Event()
            return self._started.pop()

    async def read_answers(self) -> None:
        """Read what the server answers, until cancelled or its end."""
        assert self._process.stdout  # noqa: S101 - for mypy: it was opened with one
        rest = b""
        async for more in self._process.stdout:
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                self._take(*line.split())

    def _take(self, word: bytes, pid: bytes, code: bytes = b"0") -> None:
        if word == b"started":
            process = self._alive[int(pid)] = WorkerProcess(int(pid))
            self._started.append(process)
            self._answered.set()
        else:
            process = self._alive.pop(int(pid))
            process.code = int(code)
            process.ended.set()


@asynccontextmanager
async def open_fork_server(environment: Mapping[str, str]) -> AsyncIterator[ForkServer]:
    """Have a server that starts workers in *environment*; none of them outlives the context."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", __name__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    server = ForkServer(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.read_answers)
            yield server
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    await pipe.aclose()
            await process.wait()


if __name__ == "__main__":
    main()
