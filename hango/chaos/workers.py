"""The worker processes of a scenario: started as a user's are, started again when one ends.

Rule: a worker ends by a signal, or by its watchdog after a pause; any other end is
a problem.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from hango.chaos.fork_server import ForkServer, WorkerProcess, open_fork_server
from hango.chaos.journal import Timeline
from hango.chaos.plugin import JOURNAL
from hango.chaos.proxy import Proxy, open_proxy

LEASE = 3.0  # seconds; short, so that much happens, and far longer than a busy machine's pauses

_SETTINGS: Mapping[str, str] = {
    "HANGO_BIND": "127.0.0.1:0",
    "HANGO_PLUGINS": "hango.chaos.plugin,hango.chaos.misbehaving",
    "HANGO_RUN_WORKERS": "8",
    "HANGO_RUN_LEASE_TTL": f"{LEASE:g}s",
    "HANGO_RUN_RECLAIM_INTERVAL": "500ms",
    "HANGO_RUN_POLL_INTERVAL": "1s",
    # a run may lose its worker any number of times, and must succeed all the same
    "HANGO_RUN_MAX_RECLAIMS": "0",
    # as long as the longest turn: some drains cut one short
    "HANGO_DRAIN_TIMEOUT": "1s",
    "HANGO_SESSION_IDLE_TIMEOUT": "2s",
}
_READY = "executing runs"  # a line of its log
_WATCHDOG = "Timeout ("  # what the watchdog writes before it ends the process, and then all stacks
_HELD = " in hold_"  # a frame of `hango.chaos.misbehaving` that holds the process
_LISTENING = re.compile(r"listening on (http://\S+)")
_USAGE = 2  # its exit code when its settings or plug-ins cannot be used
_DRAIN_TIMEOUT = 60.0  # seconds, most of which a database that is away would take
_PAUSE = 0.02  # seconds between two looks at a process
_RESTART_DELAY = 0.2  # seconds before a worker that ended by itself is started again


@attrs.define(eq=False)
class Worker:
    """One process.

    Attributes:
        role: the one with ``all`` answers HTTP, too.
        log: the file it writes to.
        proxy: its way to Postgres.
        sent: the last signal that should end it.
        paused: it is stopped now.
        cut_off: nothing passes between it and Postgres now.
        disturbed_at: when it last was seen not to execute runs (trio clock).
        paused_before: it was stopped at least once.
    """

    name: str
    role: str
    process: WorkerProcess
    log: Path
    proxy: Proxy
    sent: signal.Signals | None = None
    paused: bool = False
    paused_before: bool = False
    cut_off: bool = False
    disturbed_at: float = attrs.field(factory=trio.current_time)
    _ready: bool = False

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.code is None

    @property
    def ready(self) -> bool:
        """Whether it executes runs."""
        self._ready = self._ready or _READY in self._read_log()
        return self._ready and self.alive

    @property
    def url(self) -> str:
        """Where it answers HTTP; it is `ready`."""
        found = _LISTENING.search(self._read_log())
        assert found  # noqa: S101 - it listens before it executes runs
        return found[1]

    @property
    def ended_by_watchdog(self) -> bool:
        """Whether it ended because its event loop stood still."""
        return self.process.code == 1 and _WATCHDOG in self._read_log()

    @property
    def undisturbed_for(self) -> float:
        """Seconds that it has been seen to execute runs; to be asked often."""
        if not _is_working(self) or self.cut_off:
            self.disturbed_at = trio.current_time()
        return trio.current_time() - self.disturbed_at

    def end(self, number: signal.Signals) -> None:
        """Send it a signal that should end it."""
        self.sent = number
        self.process.signal(number)

    def problem(self) -> str | None:
        """Return what is wrong with how it ended; None if nothing is."""
        log, code = self._read_log(), self.process.code
        worker = f"worker {self.name} (its log: {self.log})"
        if "Traceback" in log or "unexpected error in hango" in log:
            return f"{worker} logged an unexpected error"
        if self.ended_by_watchdog and (self.paused_before or _HELD in log):
            return None
        if self.sent is signal.SIGTERM and code not in (0, -signal.SIGKILL):
            return f"{worker} was drained, and exited with {code}"
        if self.sent is None and (_READY in log or code == _USAGE):
            return f"{worker} ended by itself, with {code}"
        return None

    def _read_log(self) -> str:
        return self.log.read_text("utf-8", "replace")


@attrs.define(eq=False)
class Workers:
    """A number of workers, each started again when it ends.

    Attributes:
        size: how many.
        folder: for their logs.
        problems: what was wrong with how some of them ended.
        watchdog_exits: how many the watchdog ended.
        workers: those that live.
    """

    size: int
    folder: Path
    _dsn: str
    _environment: Mapping[str, str]
    _timeline: Timeline
    problems: list[str] = attrs.field(factory=list)
    watchdog_exits: int = 0
    workers: list[Worker] = attrs.field(factory=list)
    _started: int = 0
    _closing: bool = False

    @classmethod
    def of(cls, size: int, folder: Path, dsn: str, journal: Path, timeline: Timeline) -> Workers:
        """Describe workers on one database; `run` starts them."""
        ours = {**_SETTINGS, JOURNAL: str(journal)}
        foreign = ("HANGO_", "OPENAI_", "ANTHROPIC_", "OTEL_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return cls(size, folder, dsn, {**kept, **ours}, timeline)

    async def run(self) -> None:
        """Keep the workers alive until `close`; when cancelled, kill them."""
        async with open_fork_server(self._environment) as server, trio.open_nursery() as nursery:
            for number in range(self.size):
                nursery.start_soon(self._keep_one, server, "worker" if number else "all")

    async def _keep_one(self, server: ForkServer, role: str) -> None:
        async with open_proxy(self._dsn) as proxy:
            while not self._closing:
                await self._run_one(server, proxy, role)

    async def _run_one(self, server: ForkServer, proxy: Proxy, role: str) -> None:
        worker = await self._start(server, proxy, role)
        self.workers.append(worker)
        await worker.process.ended.wait()
        self._timeline.write(f"worker {worker.name} ended with {worker.process.code}")
        self.workers.remove(worker)
        self.watchdog_exits += worker.ended_by_watchdog
        if problem := worker.problem():
            self.problems.append(problem)
        if worker.sent is None:
            await trio.sleep(_RESTART_DELAY)

    async def _start(self, server: ForkServer, proxy: Proxy, role: str) -> Worker:
        self._started += 1
        name = f"{self._started:03}"
        log = self.folder / f"worker-{name}.log"
        log.touch()
        settings = {"HANGO_ROLE": role, "HANGO_DATABASE_URL": proxy.dsn}
        return Worker(name, role, await server.start(log, settings), log, proxy)

    async def wait_until_ready(self) -> bool:
        """Wait until all execute runs; return False if one ends before, which is in `problems`."""
        while sum(map(_is_working, self.workers)) < self.size:
            if self.problems:
                return False
            await trio.sleep(_PAUSE)
        return True

    @property
    def can_work(self) -> bool:
        """Whether at least one has executed runs for the length of a lease, without a fault."""
        return max((worker.undisturbed_for for worker in self.workers), default=0.0) > LEASE

    # --- faults -----------------------------------------------------------------------------

    async def kill(self, pick: int) -> None:
        """Kill one; preferably one that works, and not one that starts or is paused."""
        worker = await self._choose(pick, _is_working, _may_be_killed)
        worker.end(signal.SIGKILL)

    async def drain(self, pick: int) -> None:
        """Ask one to end in order."""
        worker = await self._choose(pick, _is_working)
        worker.end(signal.SIGTERM)

    async def pause(self, pick: int, seconds: float) -> None:
        """Stop one for *seconds*, as a frozen container is."""
        worker = await self._choose(pick, _is_working)
        worker.paused = worker.paused_before = True
        worker.process.signal(signal.SIGSTOP)
        try:
            await trio.sleep(seconds)
        finally:
            worker.process.signal(signal.SIGCONT)
            worker.paused = False

    async def blackhole(self, pick: int, seconds: float) -> None:
        """Let nothing pass between one and Postgres for *seconds*."""
        worker = await self._choose(pick, _is_working)
        worker.cut_off = True
        try:
            await worker.proxy.blackhole(seconds, reset=bool(pick % 2))
        finally:
            worker.cut_off = False

    async def url(self) -> str:
        """Return where the one that answers HTTP does so."""
        return (await self._choose(0, _answers_http)).url

    async def _choose(self, pick: int, *wanted: Callable[[Worker], bool]) -> Worker:
        """Wait for a worker that is as wanted; the first criterion that any meets counts."""
        while True:
            for criterion in wanted:
                if found := [worker for worker in self.workers if criterion(worker)]:
                    return found[pick % len(found)]
            await trio.sleep(_PAUSE)

    # --- the end ----------------------------------------------------------------------------

    async def close(self) -> Sequence[str]:
        """Drain all, and return the problems."""
        self._closing = True
        with trio.move_on_after(_DRAIN_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for worker in list(self.workers):
                    nursery.start_soon(partial(self._drain_at_end, worker))
        self.problems += [f"worker {worker.name} does not end" for worker in self.workers]
        return self.problems

    async def _drain_at_end(self, worker: Worker) -> None:
        while worker.alive and not worker.ready:  # noqa: ASYNC110 - another process gets ready
            await trio.sleep(_PAUSE)
        worker.end(signal.SIGTERM)
        await worker.process.ended.wait()


def _is_working(worker: Worker) -> bool:
    return worker.ready and not worker.paused and worker.sent is None


def _answers_http(worker: Worker) -> bool:
    return _is_working(worker) and worker.role == "all"


def _may_be_killed(worker: Worker) -> bool:
    return worker.alive and worker.sent is not signal.SIGKILL
