"""The line for connections: who goes first, how many are opened, what is done when there are few."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
import trio

from hango.db import checkout
from hango.db.connections import Connection
from hango.db.pool import Pool, open_pool
from hango.db.queries import Query
from hango.domain import new_id
from hango.errors import NotSent, StoreUnavailable
from hango.store.queue import RunQueue
from hango.testing.plugin import sql

from support.network import network_to

ONE = Query("one", "select 1 as one", ())
PID = Query("pid", "select pg_backend_pid() as pid", ())
SLEEP = Query("sleep", "select pg_sleep(60)", ())
BACKENDS = """
select count(*) as n from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


@asynccontextmanager
async def busy(pool: Pool, count: int) -> AsyncIterator[trio.CancelScope]:
    """Keep *count* connections busy with readers, until the scope that this yields is cancelled."""
    async with trio.open_nursery() as readers:
        for _ in range(count):
            readers.start_soon(pool.rows, SLEEP)
        while pool.idle > pool.size - count:
            await trio.lowlevel.checkpoint()
        yield readers.cancel_scope
        readers.cancel_scope.cancel()


async def in_line(pool: Pool, count: int) -> None:
    """Wait until so many wait for a connection."""
    with trio.fail_after(20):
        while len(pool._connections._line) < count:
            await trio.lowlevel.checkpoint()


@pytest.mark.rule(28)
async def test_executors_go_before_readers_that_came_first(database: str) -> None:
    """R-F3: a paid turn does not wait behind a flood of requests; heartbeats wait behind nobody."""
    order: list[str] = []
    async with open_pool(database, size=1) as pool, trio.open_nursery() as nursery:

        async def work(name: str, own: Pool) -> None:
            await own.unit(told)
            order.append(name)

        async with busy(pool, 1) as readers:
            for number, name in enumerate(["reader", "reader", "executor", "reader", "executor"]):
                own = pool.for_executors() if name == "executor" else pool
                nursery.start_soon(work, name, own)
                await in_line(pool, number + 1)
            readers.cancel()
    assert order == ["executor", "executor", "reader", "reader", "reader"]


async def told(connection: Connection) -> Sequence[object]:
    """Ask for anything."""
    return await connection.fetch("select 1")


@pytest.mark.rule(28)
async def test_a_write_that_is_repeated_keeps_its_place(database: str) -> None:
    """R-F3: giving up for a moment does not send it to the end of the line."""
    order: list[str] = []
    async with open_pool(database, size=1) as pool, trio.open_nursery() as nursery:
        executors = pool.for_executors()
        first = executors.keeping_place()

        async def work(name: str, own: Pool) -> None:
            await own.write(ONE)
            order.append(name)

        async with busy(pool, 1) as readers:
            with pytest.raises(NotSent):
                await first.write(ONE, deadline=0.01)
            nursery.start_soon(work, "later", executors)
            await in_line(pool, 1)
            nursery.start_soon(work, "first", first)
            await in_line(pool, 2)
            readers.cancel()
    assert order == ["first", "later"]


@pytest.mark.rule(28)
async def test_readers_leave_connections_to_executors(database: str) -> None:
    """R-F3: however many read, an executor need not even wait for one of them to end."""
    async with open_pool(database) as pool, busy(pool, 8):
        with pytest.raises(NotSent):
            await pool.write(ONE, deadline=0.1)
        assert await pool.for_executors().write(ONE)


async def test_no_more_connections_are_opened_than_are_needed(database: str) -> None:
    """R-F4: one client needs one connection, the one that it used before."""
    async with open_pool(database) as pool, open_pool(database, size=1) as observer:
        pids = {(await pool.rows(PID))[0]["pid"] for _ in range(30)}
        assert len(pids) == 1
        assert (await sql(observer, BACKENDS))[0]["n"] == 1


async def test_a_connection_that_was_idle_for_long_is_not_used(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-F5: something on the way may have forgotten it."""
    async with open_pool(database) as pool:
        before = (await pool.rows(PID))[0]["pid"]
        monkeypatch.setattr(checkout, "MAX_IDLE", 0.0)
        assert (await pool.rows(PID))[0]["pid"] != before


# --- fewer than wanted ----------------------------------------------------------------------


@pytest.fixture
async def few(pool: Pool, database: str) -> AsyncIterator[str]:
    """Have a user for whom the server has three connections; yields the URL."""
    name = f"few_{uuid4().hex}"
    await sql(pool, f"create role {name} login password 'few' connection limit 3")
    await sql(pool, f"grant all on all tables in schema public to {name}")
    before, _, rest = database.partition("://")
    try:
        yield f"{before}://{name}:few@{rest.rpartition('@')[2]}"
    finally:
        with trio.CancelScope(shield=True):
            end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1"
            await sql(pool, end, name)
            await sql(pool, f"drop owned by {name}")
            await sql(pool, f"drop role {name}")


@pytest.mark.rule(28)
async def test_with_few_connections_the_healthy_ones_are_used(few: str) -> None:
    """R-F4: nobody fails for a connection that cannot be opened while there are others."""
    async with open_pool(few) as pool, trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(pool.rows, ONE)
            nursery.start_soon(pool.for_executors().write, ONE)
    # the pool is closed: whatever failed is raised


@pytest.mark.rule(4)
async def test_a_heartbeat_uses_what_there_is(few: str) -> None:
    """R-F4: cut off, and with all places taken, it takes a connection of the pool; before any other."""
    async with open_pool(few) as pool, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(pool.rows, Query("a moment", "select pg_sleep(0.05)", ()))
        await in_line(pool, 17)
        assert await pool.heartbeat_write(ONE, deadline=20)
        assert len(pool._connections._line) > 0


async def test_without_any_connection_everybody_is_told_at_once() -> None:
    """There is nothing to wait for, and nothing was sent."""
    async with open_pool("postgresql://nobody@/nothing?host=/nonexistent") as pool:
        for own in (pool, pool.for_executors()):
            with pytest.raises(NotSent, match="/nonexistent cannot be reached: No such file"):
                await own.write(ONE)
        with pytest.raises(NotSent):
            await pool.heartbeat_write(ONE, deadline=5)
        with pytest.raises(NotSent):
            await pool.warm_up()


@pytest.mark.rule(5)
async def test_a_claim_that_was_never_sent_is_not_looked_for() -> None:
    """R-F4: what this process has of the session is then another claim, not to be given back."""
    async with open_pool("postgresql://nobody@/nothing?host=/nonexistent") as pool:
        queue = RunQueue(pool, new_id(), 90.0, 10)
        with pytest.raises(StoreUnavailable):
            await queue.claim_next(new_id())
        assert queue.unconfirmed == frozenset()


async def test_connections_for_heartbeats_and_notifications_are_opened_first(database: str) -> None:
    """R-F4: they are there when others have taken every other place."""
    async with network_to(database) as network, open_pool(network.url) as pool:
        await pool.warm_up()
        network.refusing = True
        async with pool.listen() as notifications:
            assert await pool.heartbeat_write(ONE, deadline=5)
            await notifications.flush()


async def test_code_in_the_pool_sees_no_event_loop_of_asyncio(database: str) -> None:
    """W-H7: a tool can neither stop the loop of the connections nor leave tasks in it."""
    async with open_pool(database) as pool:
        await pool.ping(deadline=5)
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
