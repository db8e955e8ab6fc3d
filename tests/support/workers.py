"""Processes that execute runs, as far as they can be had inside one test: each with an owner id.

Its one rule: nothing is waited for by sleeping; a test waits for what it expects, or turns the clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from uuid import UUID

import attrs
import pytest
import trio
import trio_asyncio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.actors import WorkerSettings
from hango.agent import EventSink, Provider, Verifier
from hango.db.connections import Connector
from hango.db.pool import Pool
from hango.db.queries import Query, Row
from hango.domain import Block, Effects, ProviderRequest, RunEvent, TextBlock, new_id
from hango.errors import StoreUnavailable
from hango.testing import text
from hango.testing.clock import EPOCH, settle
from hango.testing.plugin import SeededTenant
from hango.testing.seeded_tenant import until
from hango.testing.workers import NONE, Worker, registry_of, running_worker
from hango.tools import Tool, tool

__all__ = ["Worker", "registry_of", "until"]

NEVER = 1e6  # seconds; an interval that cannot be what made something happen
SETTINGS = WorkerSettings(heartbeat_interval=NEVER, reclaim_interval=NEVER, poll_interval=NEVER)
TICKING = WorkerSettings()  # the real intervals, for tests that turn the clock


@attrs.define
class EventRecorder:
    """A sink that remembers."""

    events: list[RunEvent] = attrs.field(factory=list)

    def emit(self, event: RunEvent) -> None:
        """Remember *event*."""
        self.events.append(event)


@asynccontextmanager
async def started_worker(
    world: SeededTenant,
    provider: Provider | Mapping[str, Provider],
    *tools: Tool,
    settings: WorkerSettings = SETTINGS,
    events: EventSink | None = None,
    pool: Pool | None = None,
    max_reclaims: int = 10,
    verifiers: Mapping[str, Verifier] = NONE,
) -> AsyncIterator[Worker]:
    """Have a process; it is drained at the end, and must come to its own."""
    providers = provider if isinstance(provider, Mapping) else {"fake": provider}
    async with running_worker(
        pool or world.pool,
        providers,
        *tools,
        settings=settings,
        events=events,
        max_reclaims=max_reclaims,
        verifiers=verifiers,
    ) as worker:
        yield worker


def new_owner() -> UUID:
    """Make an owner id, as a process does when it starts."""
    return new_id()


@attrs.define
class BlockingTool:
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


# --- time -----------------------------------------------------------------------------------


def mock_now() -> datetime:
    """Say the time of a test's clock, for lease statements."""
    return EPOCH + timedelta(seconds=trio.current_time())


@attrs.frozen
class HandClock:
    """A clock that stands still but when turned, for the process and for the leases in the database."""

    clock: MockClock
    pool: Pool

    async def settle(self) -> None:
        """Return when nothing goes on any more, in any task or in the database."""
        await settle([self.pool])

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
async def database_away(pool: Pool) -> AsyncIterator[None]:
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


async def cut_connections(pool: Pool) -> None:
    """Cut all of the pool's connections; it may make new ones at once."""
    async with database_away(pool):
        pass


# --- what several tests say and ask ---------------------------------------------------------


def prompt(request: ProviderRequest) -> str:
    """Return the newest text of the user."""
    texts = [
        block.text
        for message in request.messages
        if message.role == "user"
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    return texts[-1]


def echo(request: ProviderRequest) -> Block:
    """Answer at once."""
    return text(f"heard {prompt(request)}")


async def until_idle(world: SeededTenant) -> None:
    """Return when nothing goes on: no statement is under way, and all tasks wait."""
    await wait_all_tasks_blocked(0.02)
    while world.pool.in_flight:
        await wait_all_tasks_blocked(0.02)


class PausedFirstClaim:
    """Lets the first claim commit, and something happen before its answer arrives.

    Attributes:
        made: set once the claim is committed.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], Awaitable[None]]
    ) -> None:
        write, self.made = Pool.write, trio.Event()

        async def hold(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
            rows = await write(pool, query, **values)  # type: ignore[arg-type]  # handed through
            if query.name == "claim_next_run" and not self.made.is_set():
                self.made.set()
                await meanwhile()
            return rows

        monkeypatch.setattr(Pool, "write", hold)


async def lose_reply() -> None:
    """Break the connection."""
    raise StoreUnavailable("the answer was lost")
