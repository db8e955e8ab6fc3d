"""Processes that execute runs, as far as they can be had inside one test: each with an owner id.

Its one rule: nothing is waited for by sleeping; a test waits for what it expects, or turns the clock.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import attrs
import trio
import trio_asyncio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.actors import WorkerSettings, Workshop, supervise
from hango.agent import EventSink, Provider
from hango.domain import Effects, Run, RunEvent, RunState, new_id
from hango.store.connections import Connector
from hango.store.pool import Pool
from hango.store.queue import RunQueue
from hango.tools import Registry, Tool, tool

from support.world import World

NEVER = 1e6  # seconds; an interval that cannot be what made something happen
SETTINGS = WorkerSettings(heartbeat_interval=NEVER, reclaim_interval=NEVER, poll_interval=NEVER)
TICKING = WorkerSettings()  # the real intervals, for tests that turn the clock

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_PATIENCE = 30.0  # real seconds; a test that waits longer hangs


@attrs.define
class Recorder:
    """A sink that remembers."""

    events: list[RunEvent] = attrs.field(factory=list)

    def emit(self, event: RunEvent) -> None:
        """Remember *event*."""
        self.events.append(event)


@attrs.frozen
class Worker:
    """A running process.

    Attributes:
        drain: set it to shut the process down.
        ended: set when it has.
        scope: cancel it to tear the process down.
    """

    queue: RunQueue
    drain: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


@asynccontextmanager
async def working(
    world: World,
    provider: Provider | Mapping[str, Provider],
    *tools: Tool,
    settings: WorkerSettings = SETTINGS,
    events: EventSink | None = None,
    pool: Pool | None = None,
    max_reclaims: int = 10,
) -> AsyncIterator[Worker]:
    """Have a process; it is drained at the end, and must come to its own."""
    pool = pool or world.pool
    providers = provider if isinstance(provider, Mapping) else {"fake": provider}
    worker = Worker(RunQueue(pool, new_owner(), settings.lease_ttl, max_reclaims))
    prepare = Workshop(providers, registry_of(*tools), settings).prepare

    async def live(task_status: trio.TaskStatus[None]) -> None:
        with worker.scope:
            await supervise(
                queue=worker.queue,
                pool=pool,
                prepare=prepare,
                settings=settings,
                drain=worker.drain,
                events=events or Recorder(),
                task_status=task_status,
            )
        worker.ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(partial(live))
        yield worker
        worker.drain.set()


def new_owner() -> UUID:
    """Make an owner id, as a process does when it starts."""
    return new_id()


def registry_of(*tools: Tool) -> Registry:
    """Register *tools*."""
    registry = Registry()
    for one in tools:
        registry.register(one)
    return registry


@attrs.define
class Gate:
    """A tool named ``hold`` that waits: `entered` is set when it is called, and `open` lets it go.

    Attributes:
        calls: how often it was called.
        left: how often it ended, also by being cancelled.
    """

    entered: trio.Event = attrs.field(factory=trio.Event)
    open: trio.Event = attrs.field(factory=trio.Event)
    calls: int = 0
    left: int = 0

    @property
    def tool(self) -> Tool:
        """The tool."""

        async def hold() -> str:
            """Wait at the gate; safe to run again."""
            self.calls += 1
            self.entered.set()
            try:
                await self.open.wait()
            finally:
                self.left += 1
            return "let go"

        return tool(effects=Effects.READ_ONLY)(hold)


async def until(world: World, runs: Sequence[Run], *states: RunState) -> list[Run]:
    """Wait, by the doorbell, until every one of *runs* is in one of *states* (none: ended)."""
    wanted = states or (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)
    with trio.fail_after(_PATIENCE):
        async with world.pool.listen() as rings:
            while True:
                now = [await world.reload(run) for run in runs]
                if all(run.state in wanted for run in now):
                    return now
                await anext(rings)


# --- time -----------------------------------------------------------------------------------


def mock_now() -> datetime:
    """Say the time of a test's clock, for lease statements."""
    return _EPOCH + timedelta(seconds=trio.current_time())


@attrs.frozen
class Time:
    """A clock that stands still but when turned, for the process and for the leases in the database."""

    clock: MockClock
    pool: Pool

    async def settle(self) -> None:
        """Return when nothing goes on any more, in any task or in the database."""
        give_up = time.monotonic() + _PATIENCE
        while True:
            await wait_all_tasks_blocked(0.002)
            if not self.pool.in_flight:
                return
            assert time.monotonic() < give_up, "something goes on for ever"

    async def turn(self, seconds: float, step: float = 1.0) -> None:
        """Let *seconds* pass, settling before and after every *step*."""
        await self.settle()
        end = self.clock.current_time() + seconds
        while (left := end - self.clock.current_time()) > 0:
            self.clock.jump(min(step, left))
            await self.settle()


# --- a database that goes away --------------------------------------------------------------

_CUT = """
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
"""


@asynccontextmanager
async def away(pool: Pool) -> AsyncIterator[None]:
    """Cut all of the pool's connections, and let it make no new ones until the context is left."""
    connector = pool.connector
    loop = pool._loop
    connection = await trio_asyncio.aio_as_trio(connector.connect, loop=loop)()
    pool.connector = Connector("postgresql://nobody@/nothing?host=/nonexistent", {})
    try:
        await trio_asyncio.aio_as_trio(connection.execute, loop=loop)(_CUT)
        await wait_all_tasks_blocked(0.01)  # until the ends of the sockets have been read
        yield
    finally:
        pool.connector = connector
        connection.terminate()


async def cut(pool: Pool) -> None:
    """Cut all of the pool's connections; it may make new ones at once."""
    async with away(pool):
        pass
