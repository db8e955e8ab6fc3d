"""Someone who sits on a row, and the moment when others wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, Protocol
from uuid import UUID

import trio
import trio_asyncio

from hango.db.pool import Pool
from hango.db.queries import Row
from hango.testing.plugin import sql

_WAITING = """
select count(*) as waiting
  from pg_stat_activity
 where datname = current_database() and wait_event_type = 'Lock'
"""


class Fetch(Protocol):
    """Runs a statement."""

    async def __call__(self, text: str, *arguments: object) -> Sequence[Row]:
        """Return its rows."""
        ...


@asynccontextmanager
async def row_held(
    pool: Pool, table: Literal["sessions", "runs", "users", "agents"], row_id: UUID
) -> AsyncIterator[Fetch]:
    """Hold a row's lock, idle in a transaction of its own, until the context is left.

    Yields what runs statements in that transaction; it commits at the end.
    """
    loop = pool._loop
    connection = await trio_asyncio.aio_as_trio(pool.connector.connect, loop=loop)()
    execute = trio_asyncio.aio_as_trio(connection.execute, loop=loop)
    try:
        await execute("set idle_in_transaction_session_timeout = 0")
        await execute("begin")
        await execute(f"select from {table} where id = '{row_id}' for update")  # our own words
        yield trio_asyncio.aio_as_trio(connection.fetch, loop=loop)
        await execute("commit")
    finally:
        connection.terminate()


@asynccontextmanager
async def uncommitted(pool: Pool, statement: str) -> AsyncIterator[None]:
    """Have done *statement*, in a transaction that is committed when the context is left."""
    loop = pool._loop
    connection = await trio_asyncio.aio_as_trio(pool.connector.connect, loop=loop)()
    execute = trio_asyncio.aio_as_trio(connection.execute, loop=loop)
    try:
        await execute("begin")
        await execute(statement)
        yield
        await execute("commit")
    finally:
        connection.terminate()


async def waiting(pool: Pool) -> int:
    """Count the statements that wait for a lock, as the server itself reports."""
    return int((await sql(pool, _WAITING))[0]["waiting"])


async def until_waiting(pool: Pool, count: int = 1) -> None:
    """Return when *count* statements wait for a lock."""
    with trio.fail_after(20):
        while await waiting(pool) < count:
            await trio.lowlevel.checkpoint()
