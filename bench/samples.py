"""What one measurement of one line yields, and the window in which it is taken."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import asyncpg
import attrs
import psutil

T = TypeVar("T")

_IO_STATISTICS = 18  # the version of Postgres whose pg_stat_io knows the WAL
_LAG = 0.2  # seconds: a backend reports its statistics after its client has gone


@attrs.define
class Sample:
    """One line in one round.

    Attributes:
        turns: done in the window; requests, for lines of HTTP.
        seconds: length of the window.
        latencies: milliseconds of single runs or requests; empty where they are not measured.
        python_ms: CPU of the measured Python processes in the window.
        postgres_ms: CPU of all processes of the server in the window.
        wal: bytes written in the window.
        commits, syncs: of the whole life of the line after its preparation.
        all_turns: turns that `commits` and `syncs` belong to.
    """

    turns: int = 0
    seconds: float = 0.0
    latencies: list[float] = attrs.field(factory=list)
    python_ms: float = 0.0
    postgres_ms: float = 0.0
    wal: int = 0
    commits: int = 0
    syncs: int = 0
    all_turns: int = 0

    def figures(self) -> dict[str, float]:
        """Return what is reported of it, by name; only what was measured."""
        found = {"turns/s": self.turns / self.seconds} if self.seconds else {}
        found |= {"p50 ms": percentile(self.latencies, 50), "p95 ms": percentile(self.latencies, 95)}
        if self.turns:
            found["Python ms"] = self.python_ms / self.turns
            found["Postgres ms"] = self.postgres_ms / self.turns
            found["WAL B"] = self.wal / self.turns
        if self.all_turns:
            found |= {"commits": self.commits / self.all_turns, "syncs": self.syncs / self.all_turns}
        return {name: value for name, value in found.items() if value}


def run_asyncio(main: Coroutine[object, object, T]) -> T:
    """Run *main* as asyncio alone does: once trio-asyncio is imported, `asyncio.run` takes its loop."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(main)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return that percentile of *values*; 0 if there are none."""
    if len(values) < 2:  # noqa: PLR2004 - quantiles needs two
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@attrs.define
class Meter:
    """Reads the counters of a server on this machine.

    Its connection lives in a thread with an event loop of its own: the callers run trio, asyncio or
    neither.  Each call blocks for about a millisecond, outside of what is measured.
    """

    _thread: ThreadPoolExecutor
    _loop: asyncio.Runner
    _connection: asyncpg.Connection

    @classmethod
    @contextmanager
    def open(cls, dsn: str) -> Iterator[Meter]:
        """Connect."""
        with (
            ThreadPoolExecutor(1) as thread,
            asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as loop,
        ):
            connection = thread.submit(loop.run, asyncpg.connect(dsn)).result()
            meter = cls(thread, loop, connection)
            try:
                yield meter
            finally:
                thread.submit(loop.run, connection.close()).result()

    def _fetch(self, statement: str) -> int:
        value: object = self._thread.submit(
            self._loop.run, self._connection.fetchval(statement)
        ).result()
        return int(str(value))

    def postgres_ms(self) -> float:
        """Return the CPU time of the server's processes so far, in milliseconds."""
        postmaster = psutil.Process(self._connection.get_server_pid()).parent()
        if postmaster is None:
            raise RuntimeError("the server must run on this machine")
        while True:
            alive = postmaster.children()
            own = postmaster.cpu_times()
            spent = own.user + own.system + own.children_user + own.children_system
            for child in alive:
                with suppress(psutil.NoSuchProcess):
                    times = child.cpu_times()
                    spent += times.user + times.system
            if postmaster.children() == alive:  # else one of them may count twice, or not at all
                return spent * 1000

    def wal(self) -> int:
        """Return the bytes of WAL written so far."""
        return self._fetch("select (pg_current_wal_insert_lsn() - '0/0')::bigint")

    def commits(self) -> int:
        """Return the commits in this database so far, of connections that are closed."""
        return self._fetch(
            "select xact_commit from pg_stat_database where datname = current_database()"
        )

    def syncs(self) -> int:
        """Return how often WAL was flushed so far, by connections that are closed."""
        if self._connection.get_server_version().major >= _IO_STATISTICS:
            return self._fetch("select sum(fsyncs)::bigint from pg_stat_io where object = 'wal'")
        return self._fetch("select wal_sync from pg_stat_wal")


@attrs.define
class Window:
    """Measures what happens between `start` and `stop`."""

    _meter: Meter
    _began: float = attrs.field(default=0.0, init=False)
    _python: float = attrs.field(default=0.0, init=False)
    _postgres: float = attrs.field(default=0.0, init=False)
    _wal: int = attrs.field(default=0, init=False)

    def start(self) -> None:
        """Note the counters."""
        self._wal, self._postgres = self._meter.wal(), self._meter.postgres_ms()
        self._began, self._python = time.perf_counter(), time.process_time()

    def stop(self, sample: Sample, turns: int) -> None:
        """Put what has been spent since `start` on *turns* into *sample*."""
        sample.python_ms = (time.process_time() - self._python) * 1000
        sample.seconds = time.perf_counter() - self._began
        sample.postgres_ms = self._meter.postgres_ms() - self._postgres
        sample.wal = self._meter.wal() - self._wal
        sample.turns = turns


@contextmanager
def counting_commits(meter: Meter, sample: Sample) -> Iterator[None]:
    """Count the commits and syncs of connections that are opened and closed in the context."""
    commits, syncs = meter.commits(), meter.syncs()
    yield
    time.sleep(_LAG)
    sample.commits, sample.syncs = meter.commits() - commits, meter.syncs() - syncs
