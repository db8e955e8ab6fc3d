"""The worker processes: started like a user's, started again whenever one ends, and hit.

One rule: a process ends because it was told to, or something is wrong with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from hango.chaos.forks import Forks, Process, open_forks
from hango.chaos.plugin import JOURNAL

LEASE = 2.0  # seconds; short, so that things happen, and far longer than a busy machine's hiccups

_SETTINGS: Mapping[str, str] = {
    "HANGO_ROLE": "worker",
    "HANGO_PLUGINS": "hango.chaos.plugin",
    "HANGO_RUN_WORKERS": "8",
    "HANGO_RUN_LEASE_TTL": f"{LEASE:g}s",
    "HANGO_RUN_RECLAIM_INTERVAL": "500ms",
    "HANGO_RUN_POLL_INTERVAL": "1s",
    # a run may be unlucky any number of times, and is to succeed all the same
    "HANGO_RUN_MAX_RECLAIMS": "0",
    # as long as the longest turn: some drains cut one short
    "HANGO_DRAIN_TIMEOUT": "1s",
    "HANGO_SESSION_IDLE_TIMEOUT": "2s",
}
_READY = "executing runs"
_LONGEST_DRAIN = 60.0  # seconds, of which most would be a database that is away
_PAUSE = 0.02  # seconds between two looks
_AGAIN = 0.2  # seconds before a process that ended by itself is started again


@attrs.define(eq=False)
class Worker:
    """One process.

    Attributes:
        log: where it writes to.
        told: the signal it was last told to end by.
        frozen: it is stopped at the moment.
    """

    name: str
    process: Process
    log: Path
    told: signal.Signals | None = None
    frozen: bool = False
    _ready: bool = False

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.code is None

    @property
    def ready(self) -> bool:
        """Whether it executes runs."""
        self._ready = self._ready or _READY in self.log.read_text("utf-8", "replace")
        return self._ready and self.alive

    def end(self, number: signal.Signals) -> None:
        """Tell it to end."""
        self.told = number
        self.process.signal(number)

    def complaint(self) -> str | None:
        """Say what is wrong with how it ended; None if nothing is."""
        code = self.process.code
        log = self.log.read_text("utf-8", "replace")
        where = f"worker {self.name} (its log: {self.log})"
        if "Traceback" in log or "unexpected error in hango" in log:
            return f"{where} logged an unexpected error"
        if self.told is signal.SIGTERM and code not in (0, -signal.SIGKILL):
            return f"{where} was drained, and exited with {code}"
        if self.told is None and _READY in log:
            return f"{where} ended by itself, with {code}"
        return None


@attrs.define(eq=False)
class Fleet:
    """Some workers, each started again when it ends.

    Attributes:
        size: how many.
        folder: for their logs.
        complaints: what is wrong with how some of them ended.
    """

    size: int
    folder: Path
    _environment: Mapping[str, str]
    complaints: list[str] = attrs.field(factory=list)
    workers: list[Worker] = attrs.field(factory=list)
    _started: int = 0
    _closing: bool = False

    @classmethod
    def of(cls, size: int, folder: Path, dsn: str, journal: Path) -> Fleet:
        """Make a fleet on one database; nothing is started yet."""
        ours = {**_SETTINGS, "HANGO_DATABASE_URL": dsn, JOURNAL: str(journal)}
        foreign = ("HANGO_", "OPENAI_", "ANTHROPIC_", "OTEL_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return cls(size, folder, {**kept, **ours})

    async def run(self) -> None:
        """Keep the workers alive until `close`; cancelled, kill them."""
        async with open_forks(self._environment) as forks, trio.open_nursery() as nursery:
            for _ in range(self.size):
                nursery.start_soon(self._keep_one, forks)

    async def _keep_one(self, forks: Forks) -> None:
        while not self._closing:
            worker = await self._start(forks)
            self.workers.append(worker)
            await worker.process.ended.wait()
            self.workers.remove(worker)
            if complaint := worker.complaint():
                self.complaints.append(complaint)
            if worker.told is None:
                await trio.sleep(_AGAIN)

    async def _start(self, forks: Forks) -> Worker:
        self._started += 1
        name = f"{self._started:03}"
        log = self.folder / f"worker-{name}.log"
        log.touch()
        return Worker(name, await forks.start(log), log)

    # --- what is done to them ---------------------------------------------------------------

    async def kill(self, pick: int) -> None:
        """Kill one without a word; rather one that is at work than one that is starting or frozen."""
        worker = await self._one(pick, _at_work, _alive)
        worker.end(signal.SIGKILL)

    async def drain(self, pick: int) -> None:
        """Ask one to end in order."""
        worker = await self._one(pick, _at_work)
        worker.end(signal.SIGTERM)

    async def pause(self, pick: int, seconds: float) -> None:
        """Freeze one for *seconds*."""
        worker = await self._one(pick, _at_work)
        worker.frozen = True
        worker.process.signal(signal.SIGSTOP)
        try:
            await trio.sleep(seconds)
        finally:
            worker.process.signal(signal.SIGCONT)
            worker.frozen = False

    async def ready(self) -> None:
        """Wait until all are at work."""
        while sum(map(_at_work, self.workers)) < self.size:  # noqa: ASYNC110 - as they say in their logs
            await trio.sleep(_PAUSE)

    async def _one(self, pick: int, *wanted: Callable[[Worker], bool]) -> Worker:
        """Wait for a worker that is as wanted, the first wish first."""
        while True:
            for wish in wanted:
                if found := [worker for worker in self.workers if wish(worker)]:
                    return found[pick % len(found)]
            await trio.sleep(_PAUSE)

    async def close(self) -> Sequence[str]:
        """Let all end in order, and return the complaints."""
        self._closing = True
        with trio.move_on_after(_LONGEST_DRAIN):
            async with trio.open_nursery() as nursery:
                for worker in list(self.workers):
                    nursery.start_soon(partial(self._retire, worker))
        self.complaints += [f"worker {worker.name} does not end" for worker in self.workers]
        return self.complaints

    async def _retire(self, worker: Worker) -> None:
        while worker.alive and not worker.ready:  # noqa: ASYNC110 - another process gets ready
            await trio.sleep(_PAUSE)
        worker.end(signal.SIGTERM)
        await worker.process.ended.wait()


def _at_work(worker: Worker) -> bool:
    return worker.ready and not worker.frozen and worker.told is None


def _alive(worker: Worker) -> bool:
    return worker.alive and worker.told is not signal.SIGKILL
