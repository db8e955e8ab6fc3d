"""What a process tells about itself: its row in ``processes``, and the gauges of its metrics.

Rule: a scrape reads only what was set here before; it never waits for the database.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from hango.db.pool import Pool
from hango.domain import ErrorCode, RunState
from hango.errors import StoreUnavailable
from hango.plugins import Plugins
from hango.store.processes import BEAT_INTERVAL, LiveRuns, Process, Processes
from hango.telemetry import metrics, names
from hango.tools.failures import ErrorKind

_TICK = 1.0  # seconds between two looks at the event loop and the pool
_FAREWELL = 2.0  # seconds for the database to take the end of the process
_MAX_TENANTS = 100  # that have series of their own

_LIVE = (RunState.QUEUED, RunState.RUNNING)

_log = logging.getLogger(__name__)


def start_counters(plugins: Plugins) -> None:
    """Make every counter show 0 from the start."""
    metrics.start_at_zero(
        states=RunState,
        error_codes=ErrorCode,
        tools=plugins.registry.names(),
        tool_error_kinds=ErrorKind,
        providers=plugins.providers,
    )


@asynccontextmanager
async def observing(pool: Pool, process: Process) -> AsyncIterator[None]:
    """Keep the row of *process* and the gauges up to date while the block runs."""
    processes = Processes(pool)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_beat, processes, process, name="beat of the process")
        nursery.start_soon(_watch, pool, name="gauges")
        yield
        nursery.cancel_scope.cancel()
    try:
        await processes.end(process, deadline=_FAREWELL)
    except StoreUnavailable as error:
        _log.warning("the end of this process could not be recorded: %s", error)


async def _beat(processes: Processes, process: Process) -> None:
    """Beat for ever; says when the database is away, and when it is back."""
    gauges = LiveRunGauges()
    away_since: float | None = None
    while True:
        try:
            gauges.set(await processes.beat(process))
        except StoreUnavailable as error:
            if away_since is None:
                away_since = trio.current_time()
                _log.warning("the database is away: %s", error)
            await trio.sleep(_TICK)
            continue
        if away_since is not None:
            _log.warning("the database is back after %.1f s", trio.current_time() - away_since)
            away_since = None
        await trio.sleep(BEAT_INTERVAL)


async def _watch(pool: Pool) -> None:
    """Measure event loop and pool for ever."""
    while True:
        metrics.pool_size.set(pool.size)
        metrics.pool_in_use.set(pool.size - pool.idle)
        metrics.pool_waiting.set(pool.waiting)
        due = trio.current_time() + _TICK
        await trio.sleep_until(due)
        metrics.loop_lag.record(max(trio.current_time() - due, 0.0))


@attrs.define
class LiveRunGauges:
    """The gauges of queued and running runs: of the first tenants each, and of all others together.

    Attributes:
        _shown: the series that have been set; one with no run any more is set to 0.
    """

    _tenants: metrics.Bounded = attrs.field(factory=lambda: metrics.Bounded(_MAX_TENANTS))
    _shown: set[tuple[str, str]] = attrs.field(factory=set, init=False)
    _lanes: set[str] = attrs.field(factory=lambda: {"main"}, init=False)

    def set(self, found: Sequence[LiveRuns]) -> None:
        """Set the gauges to what was *found*."""
        by_state: Counter[tuple[str, str]] = Counter()
        by_lane: Counter[str] = Counter()
        for live in found:
            by_state[live.state, self._tenants.of(str(live.tenant_id))] += live.runs
            if live.state == RunState.QUEUED:
                by_lane[live.lane] += live.runs
        self._shown |= {(state, tenant) for _, tenant in by_state for state in _LIVE}
        self._shown |= {(state, names.OTHER) for state in _LIVE}
        self._lanes |= by_lane.keys()
        for state, tenant in self._shown:
            labels = {names.STATE: state, names.TENANT_ID: tenant}
            metrics.runs_by_state.set(by_state[state, tenant], labels)
        for lane in self._lanes:
            metrics.run_queue_depth.set(by_lane[lane], {names.LANE: lane})
