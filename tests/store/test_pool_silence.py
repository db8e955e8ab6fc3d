"""Connections that fall silent, and statements that are given up."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
import trio

from hango.db import silence
from hango.db.connections import Connection
from hango.db.pool import Pool, open_pool
from hango.db.queries import Query
from hango.errors import StoreUnavailable
from hango.testing.plugin import sql

from support.locks import uncommitted
from support.network import network_to

ONE = Query("one", "select 1 as one", ())
OTHERS = """
select pid, query from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask soon."""
    monkeypatch.setattr(silence, "SILENCE", 0.3)
    monkeypatch.setattr(silence, "LOOK_EVERY", 0.1)


async def warm(pool: Pool, count: int) -> None:
    """Have *count* idle connections."""
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(pool.rows, Query("a moment", "select pg_sleep(0.1)", ()))


@pytest.mark.rule(28)
async def test_what_the_network_forgot_costs_one_silence_and_not_one_each(database: str) -> None:
    """R-F5: the others of that age are closed with the first; a read is answered all the same."""
    async with network_to(database) as network, open_pool(network.url) as pool:
        await warm(pool, 5)
        network.forget()
        before = pool.statements
        assert (await pool.rows(ONE))[0]["one"] == 1
        assert pool.statements == before + 2  # the second on a new connection
        assert pool._connections.open == 1
        await warm(pool, 2)
        network.forget()
        with pytest.raises(
            StoreUnavailable, match="ConnectionDoesNotExist"
        ):  # found out, not timed out
            await pool.write(ONE)
        assert await pool.write(ONE)


async def test_a_slow_statement_is_waited_for(database: str) -> None:
    """It is not taken for silence: the server says that it works on it."""
    async with open_pool(database, size=2) as pool:
        await pool.rows(ONE)
        before = pool.statements
        assert await pool.rows(Query("slow", "select pg_sleep(1.5)", ()))
        assert pool.statements == before + 1


async def test_nobody_is_convicted_by_a_server_that_cannot_be_asked(database: str) -> None:
    """Then the server is the trouble; the answer may still come."""
    async with network_to(database) as network, open_pool(network.url) as pool:
        await pool.rows(ONE)
        network.refusing = True
        before = pool.statements
        assert await pool.rows(Query("slow", "select pg_sleep(1.5)", ()))
        assert pool.statements == before + 1


async def test_a_socket_notices_that_the_other_side_has_gone(database: str) -> None:
    """R-F5: the system asks, and does not wait for hours."""

    async def options(connection: Connection) -> Sequence[int]:
        sock = getattr(connection, "_transport").get_extra_info("socket")  # noqa: B009 - no public name
        return [
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        ]

    async with network_to(database) as network:
        async with open_pool(network.url) as pool:
            assert await pool.unit(options) == [1, 30, 10_000]
        async with open_pool(f"{network.url}?keepalives_idle=7&tcp_user_timeout=5000") as pool:
            assert await pool.unit(options) == [1, 7, 5000]
        async with open_pool(f"{network.url}?keepalives=0") as pool:
            assert (await pool.unit(options))[0] == 0


async def test_what_is_given_up_does_not_go_on_in_the_server(database: str) -> None:
    """R-F10: cancelled or too slow, the server is told; nothing else would end the statement."""

    async def sleep(connection: Connection) -> None:
        await connection.execute(
            "set statement_timeout = 0; set client_connection_check_interval = 0; select pg_sleep(600)"
        )

    async with open_pool(database) as pool, open_pool(database, size=1) as observer:
        with trio.move_on_after(0.5):
            await pool._run(sleep, 20.0, write=False)
        with pytest.raises(StoreUnavailable):
            await pool.unit(sleep, deadline=0.5)
        with trio.fail_after(20):
            while await sql(observer, f"{OTHERS} and query like '%pg_sleep(600)%'"):
                pass


async def test_a_locked_table_does_not_fill_the_server(database: str) -> None:
    """R-F10: the server gives up before its client, which then uses the same connection again."""
    insert = Query("insert", "insert into locked values (1)", ())
    async with open_pool(database, size=4, lease_ttl=1) as pool, open_pool(database) as others:
        await sql(others, "create table locked (n int)")

        async def insist() -> None:
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match=r"QueryCanceled|LockNotAvailable"):
                    await pool.write(insert)

        async with uncommitted(others, "lock table locked"), trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(insist)
        inserted = await sql(others, f"{OTHERS} and query like 'insert into locked%'")
        assert len(inserted) <= pool.size
        assert pool.statements == 8 * 3
