"""All the ways in which a Postgres can be away from a process.

One rule: nothing is done to the process, and nothing inside it; what it suffers, any server could do.
Each way is a context: entered, the database is away, and runs have been told to go on that will have
something to write; left, it is there again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Protocol, TypeAlias
from uuid import UUID

import asyncpg
import httpx
import psutil
import trio
import trio_asyncio

from hango.db.connections import Connection
from hango.db.pool import Pool
from hango.errors import StoreUnavailable
from hango.testing.plugin import sql

from support.locks import uncommitted, until_waiting
from support.private_postgres import PrivatePostgres

_PATIENCE = 20.0  # seconds
_PAUSE = 0.01  # seconds between two looks at another process
_READERS = 60  # requests; more than a pool gets done while tables are locked
WRITES = 3  # of runs that have been told to go on

# A test's own connections have another name.
_ITS_OWN = "datname = current_database() and application_name = 'hango'"
_BEATS = "query like '%unnest($1::uuid[], $2::bigint[]) as pair%'"
_LISTENS = "(query ilike 'listen%' or query = 'select 1')"
_COMMITTED = "wait_event = 'SyncRep'"  # for a standby
_RESET = "alter system reset synchronous_standby_names"
_RELOAD = "select pg_reload_conf()"
_FIND = "select pid from pg_stat_activity"
_END = "select pg_terminate_backend(pid) from pg_stat_activity"


class OutageTarget(Protocol):
    """Those who suffer an outage, and whoever brings it about."""

    @property
    def server(self) -> PrivatePostgres:
        """The server."""
        ...

    @property
    def pool(self) -> Pool:
        """Connections of the test's own; they have a name of their own."""
        ...

    @property
    def client(self) -> httpx.AsyncClient:
        """A client of the process."""
        ...

    @property
    def session(self) -> UUID:
        """A session the client may read."""
        ...

    def go_on(self) -> None:
        """Let runs go on: `WRITES` of them have something to write then."""
        ...


Outage: TypeAlias = Callable[[OutageTarget], AbstractAsyncContextManager[None]]


# --- stopped --------------------------------------------------------------------------------


@asynccontextmanager
async def stopped(stage: OutageTarget) -> AsyncIterator[None]:
    """Stop the server as an operator does."""
    await stage.server.stop()
    async with _started_again(stage):
        stage.go_on()
        yield


@asynccontextmanager
async def crashed_before_commits(stage: OutageTarget) -> AsyncIterator[None]:
    """End the server when writes have reached it that are not committed yet."""
    with suppress(asyncpg.InterfaceError, asyncpg.PostgresConnectionError):  # ours is cut as well
        async with uncommitted(stage.pool, "select from sessions for update"):
            stage.go_on()
            await until_waiting(stage.pool, WRITES)
            await stage.server.crash()
    async with _started_again(stage):
        yield


@asynccontextmanager
async def crashed_after_commits(stage: OutageTarget) -> AsyncIterator[None]:
    """End the server when writes are committed, and before it says so.

    A server that waits for a standby that there is not does so between the two.
    """
    async with _commits_hang(stage):
        stage.go_on()
        await _until(stage, _COMMITTED, WRITES + 1)
        await stage.server.crash()
    async with _started_again(stage):
        yield


@asynccontextmanager
async def _started_again(stage: OutageTarget) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await stage.server.start()


@asynccontextmanager
async def _commits_hang(stage: OutageTarget) -> AsyncIterator[None]:
    """Let no commit be answered from now on, as one of our own has shown; the next start ends that."""
    await sql(stage.pool, "create table probe ()")
    async with connection_of(stage.pool) as connection, trio.open_nursery() as nursery:
        try:
            await sql(stage.pool, "alter system set synchronous_standby_names = 'nobody'")
            await sql(stage.pool, _RELOAD)
            commit = trio_asyncio.aio_as_trio(_commit_on, loop=stage.pool._loop)
            nursery.start_soon(commit, connection)
            await _until(stage, _COMMITTED, 1)
            await sql(stage.pool, _RESET)
            yield
        finally:
            with trio.CancelScope(shield=True), suppress(StoreUnavailable):  # if it did not crash
                await sql(stage.pool, _RESET)
                await sql(stage.pool, _RELOAD)
        nursery.cancel_scope.cancel()


async def _commit_on(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError, asyncpg.PostgresConnectionError):
        while True:
            await connection.execute("insert into probe default values")


# --- full -----------------------------------------------------------------------------------


@asynccontextmanager
async def full(stage: OutageTarget) -> AsyncIterator[None]:
    """Let others take all connections that the server has, and the process has none."""
    async with AsyncExitStack() as crowd:
        while await _cut(stage):
            with suppress(StoreUnavailable):
                while True:
                    await crowd.enter_async_context(connection_of(stage.pool))
        stage.go_on()
        yield


@asynccontextmanager
async def busy(stage: OutageTarget) -> AsyncIterator[None]:
    """Keep all connections of the process busy but the heartbeat's, as with tables that are locked."""
    async with trio.open_nursery() as readers:
        lock = "lock table sessions, messages in access exclusive mode"
        async with uncommitted(stage.pool, lock):
            for _ in range(_READERS):
                readers.start_soon(_read, stage)
            stage.go_on()
            yield


async def _read(stage: OutageTarget) -> None:
    answered = await stage.client.get(f"/v1/sessions/{stage.session}/messages", timeout=60)
    assert answered.status_code in {200, 503}


# --- hung -----------------------------------------------------------------------------------


@asynccontextmanager
async def frozen(stage: OutageTarget) -> AsyncIterator[None]:
    """Let the server hang, whole: nobody is answered, nothing is closed."""
    postmaster = psutil.Process(stage.server.pid)
    with _hanging([postmaster.pid, *(child.pid for child in postmaster.children())]):
        stage.go_on()
        yield


@asynccontextmanager
async def closed(stage: OutageTarget) -> AsyncIterator[None]:
    """Let all connections be cut, and new ones hang."""
    with _hanging([stage.server.pid]):
        await _cut(stage)
        stage.go_on()
        yield


@asynccontextmanager
async def lines_hung(stage: OutageTarget) -> AsyncIterator[None]:
    """Let the connections hang that the process keeps for heartbeats, and to listen."""
    async with _hung(stage, f"({_BEATS} or {_LISTENS})", 2):
        yield


@asynccontextmanager
async def pool_hung(stage: OutageTarget) -> AsyncIterator[None]:
    """Let all connections hang on which the process does its work, heartbeats included."""
    async with _hung(stage, f"not {_LISTENS}", 1):
        yield


@asynccontextmanager
async def _hung(stage: OutageTarget, which: str, count: int) -> AsyncIterator[None]:
    """Let such connections hang, all there are; none in the middle of a statement, with locks."""
    idle = f"{_ITS_OWN} and {which} and state = 'idle'"
    while True:
        pids = await _until(stage, idle, count)
        with _hanging(pids):
            if set(pids) <= set(await _until(stage, idle, 0)):
                stage.go_on()
                yield
                return


@contextmanager
def _hanging(pids: Iterable[int]) -> Iterator[None]:
    stopped = []
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        yield
    finally:
        for pid in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


# --- what they are made of ------------------------------------------------------------------


@asynccontextmanager
async def connection_of(pool: Pool) -> AsyncIterator[Connection]:
    """Have a connection like those of *pool*, beside it.

    Raises:
        StoreUnavailable: the server refuses it.
    """
    connection: Connection = await trio_asyncio.aio_as_trio(pool.connector.connect, loop=pool._loop)()
    try:
        yield connection
    finally:
        connection.terminate()


async def _cut(stage: OutageTarget) -> int:
    """Cut all connections of the process; return how many there were."""
    return len(await sql(stage.pool, f"{_END} where {_ITS_OWN}"))


async def _until(stage: OutageTarget, which: str, count: int) -> Sequence[int]:
    """Wait until the server has *count* such processes for clients; return their numbers."""
    with trio.fail_after(_PATIENCE):
        while True:
            found = await sql(stage.pool, f"{_FIND} where {which}")
            if len(found) >= count:
                return [row["pid"] for row in found]
            await trio.sleep(_PAUSE)
