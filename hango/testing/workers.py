"""Processes that execute runs, as far as they can be had inside one test: each with an owner id.

One rule: the actors are the real ones; what is arranged here is only how a process begins, and the ways
in which it can come to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Never

import attrs
import trio

from hango.actors import ExecutionBuilder, WorkerSettings, supervise
from hango.actors.execution import Build
from hango.agent import NULL_SINK, EventSink, Guardrail, Provider, Verifier
from hango.db.connections import Connector
from hango.db.pool import Pool
from hango.domain import new_id
from hango.store.queue import RunQueue
from hango.testing.clock import autojumping, open_pool_on_clock
from hango.testing.databases import sql
from hango.tools import Registry, Tool

NONE: Mapping[str, Never] = MappingProxyType({})
_NOWHERE = Connector("postgresql://nobody@/nothing?host=/nonexistent", {})

_END_CONNECTIONS = """
select pg_terminate_backend(pid)
  from pg_stat_activity
 where datname = current_database() and application_name = $1 and pid <> pg_backend_pid()
"""


@attrs.frozen(eq=False)
class Worker:
    """A running process.

    Attributes:
        queue: the queue, under this process's owner id.
        pool: its connections.
        drain: set it to shut the process down.
        ended: set when it has ended.
        scope: cancel it to tear the process down.
    """

    queue: RunQueue
    pool: Pool
    drain: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _connector: Connector = attrs.field(init=False)

    @_connector.default
    def _keep_connector(self) -> Connector:
        return self.pool.connector

    @asynccontextmanager
    async def cut_off(self) -> AsyncIterator[None]:
        """Keep the database from the process as long as the context is open."""
        try:
            await self._lose_database()
            yield
        finally:
            if not self.scope.cancel_called:
                self.pool.connector = self._connector

    async def kill(self) -> None:
        """End the process as a kill does: it has no last word, neither to a run nor to a lease.

        What it does elsewhere on its way out (the ``finally`` of a tool) is done, and what is left of
        it gives up within seconds of the clock.
        """
        await self._lose_database()  # first: what is cancelled would use a connection at once
        self.scope.cancel()

    async def _lose_database(self) -> None:
        """End all connections of the process, and let it make no new ones."""
        self.pool.connector = _NOWHERE
        async with open_pool_on_clock(self._connector.dsn, self.pool.now) as other:
            name = self._connector.settings["application_name"]
            # until there are none: it takes them a moment, and one may just have been on its way in
            while await sql(other, _END_CONNECTIONS, name) or self.pool.in_flight:
                pass


@asynccontextmanager
async def own_pool(pool: Pool) -> AsyncIterator[Pool]:
    """Open a pool on the database of *pool* whose connections can be told from all others."""
    async with open_pool_on_clock(pool.connector.dsn, pool.now) as own:
        settings = {**own.connector.settings, "application_name": f"hango {new_id()}"}
        own.connector = attrs.evolve(own.connector, settings=settings)
        yield own


@asynccontextmanager
async def running_worker(
    pool: Pool,
    providers: Mapping[str, Provider],
    *tools: Tool,
    settings: WorkerSettings,
    events: EventSink | None = None,
    max_reclaims: int = 10,
    guardrails: Mapping[str, Guardrail] = NONE,
    verifiers: Mapping[str, Verifier] = NONE,
) -> AsyncIterator[Worker]:
    """Have a process; it is drained at the end, and must come to its own.

    Args:
        pool: its connections.
        providers: by the name agents choose them by.
        tools: what agents may use.
        settings: bounds and rhythms.
        events: where progress is told.
        max_reclaims: as `RunQueue.max_reclaims`.
        guardrails: by the name agents choose them by.
        verifiers: likewise, for completion gates.
    """
    worker = Worker(RunQueue(pool, new_id(), settings.lease_ttl, max_reclaims), pool)
    registry = registry_of(*tools)
    build = ExecutionBuilder(providers, registry, settings, guardrails, verifiers).build

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(_live, worker, build, settings, events or NULL_SINK))
        try:
            yield worker
            worker.drain.set()
            await _end(worker)
        finally:
            worker.scope.cancel()
            with trio.CancelScope(shield=True):
                await _end(worker)


async def _live(
    worker: Worker,
    build: Build,
    settings: WorkerSettings,
    events: EventSink,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    try:
        with worker.scope:
            await supervise(
                queue=worker.queue,
                pool=worker.pool,
                build=build,
                settings=settings,
                drain=worker.drain,
                events=events,
                task_status=task_status,
            )
    finally:
        worker.ended.set()


async def _end(worker: Worker) -> None:
    """Wait until *worker* has ended; time passes: else no last word to a database that is away ends."""
    async with autojumping():
        await worker.ended.wait()


def registry_of(*tools: Tool) -> Registry:
    """Register *tools*."""
    registry = Registry()
    for one in tools:
        registry.register(one)
    return registry
