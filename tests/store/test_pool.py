"""The bridge to asyncpg: nothing leaks, whatever is cancelled, killed or restarted."""

from __future__ import annotations

import random
from urllib.parse import urlsplit

import pytest
import trio

from hango.db.connections import Connection
from hango.db.pool import Pool, open_pool
from hango.db.queries import QUERIES, Query
from hango.errors import NotWritable, StoreUnavailable
from hango.testing.plugin import make_seeded_tenant, sql

from support.network import network_to

SLEEP = Query("sleep", "select pg_sleep(60)", ())
ONE = Query("one", "select 1 as one", ())
OTHERS = """
select pid, state from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
"""


async def test_cancelled_reads_give_their_connection_back(pool: Pool) -> None:
    """However often a read is cut short, all connections are idle and usable afterwards."""
    for _ in range(3 * pool.size):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(pool.rows, SLEEP)
                nursery.start_soon(cancel_when_busy, pool, scope)
    assert pool.idle == pool.size
    await at_rest(pool)
    assert (await pool.rows(ONE))[0]["one"] == 1


async def at_rest(pool: Pool) -> None:
    """Wait until nothing is under way: what was cut off is closed in good order, beside the work."""
    with trio.fail_after(20):
        while pool.in_flight:
            await trio.lowlevel.checkpoint()


HELD = """
select count(*) as held
  from pg_locks
 where pid <> pg_backend_pid() and relation = 'runs'::regclass
   and pid in (select pid from pg_stat_activity where datname = current_database())
"""


async def test_a_cancelled_read_leaves_no_lock_behind(pool: Pool, database: str) -> None:
    """Cut at any point of a statement, whose connection then lies idle: a migration need not wait."""
    async with open_pool(database, size=1) as observer:
        for moment in range(120):
            with trio.move_on_after(moment * 0.0002):
                await pool.rows(QUERIES["list_claimable_heads"], now=None, limit=1, max_running=0)
            with trio.fail_after(5):  # a fraction of the time after which the server gives up itself
                while (await sql(observer, HELD))[0]["held"]:
                    pass


async def cancel_when_busy(pool: Pool, scope: trio.CancelScope) -> None:
    """Cancel once somebody is using a connection."""
    while pool.idle == pool.size:
        await trio.lowlevel.checkpoint()
    scope.cancel()


@pytest.mark.parametrize("size", [1, 2])
async def test_a_storm_of_cancellations_leaves_the_pool_whole(database: str, size: int) -> None:
    """500 units of work cancelled at random points: no hang, no slot lost, no open transaction."""
    chance = random.Random(size)  # noqa: S311  # a replayable storm
    async with open_pool(database, size=size) as pool:
        await sql(pool, "create table counted (n int)")

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute("insert into counted values (1)")
                await connection.execute("select 1")

        async def client(checkpoints: int) -> None:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pool.unit, work)
                    nursery.start_soon(pool.rows, ONE)
                    for _ in range(checkpoints):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(client, chance.randrange(40))
        assert pool.idle == size
        await at_rest(pool)
        others = await sql(pool, OTHERS)
        assert {row["state"] for row in others} <= {"idle"}


async def test_a_write_is_never_torn_by_a_cancellation(pool: Pool) -> None:
    """A write that was sent is finished, and its caller gets the answer."""
    await sql(pool, "create table counted (n int)")
    insert = Query("insert", "insert into counted select 1 from pg_sleep(0.05)", ())
    answers = []

    async def write() -> None:
        answers.append(await pool.write(insert))

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            nursery.start_soon(cancel_when_busy, pool, scope)
    assert (len(answers), scope.cancel_called) == (1, True)
    assert (await sql(pool, "select count(*) as n from counted"))[0]["n"] == 1


async def test_a_write_in_a_cancelled_scope_is_not_sent(pool: Pool) -> None:
    """Cancelled before means never begun."""
    before = pool.statements
    with trio.CancelScope() as scope:
        scope.cancel()
        await pool.write(ONE)
    assert pool.statements == before


async def test_waiting_for_a_connection_has_a_deadline(database: str) -> None:
    """With all connections busy a caller is told so, instead of waiting for ever."""
    async with open_pool(database, size=1) as pool, trio.open_nursery() as nursery:
        nursery.start_soon(pool.rows, SLEEP)
        while pool.idle:
            await trio.lowlevel.checkpoint()
        with pytest.raises(StoreUnavailable):
            await pool.write(ONE, deadline=0.05)
        nursery.cancel_scope.cancel()


async def test_the_heartbeat_has_a_connection_of_its_own(database: str) -> None:
    """It gets through while all others are busy."""
    async with open_pool(database, size=1) as pool, trio.open_nursery() as nursery:
        nursery.start_soon(pool.rows, SLEEP)
        while pool.idle:
            await trio.lowlevel.checkpoint()
        assert (await pool.heartbeat_write(ONE, deadline=5))[0]["one"] == 1
        nursery.cancel_scope.cancel()


async def test_dead_connections_are_replaced(pool: Pool) -> None:
    """After the server has dropped every connection, the next read works and the slots are whole."""
    async with trio.open_nursery() as nursery:
        for _ in range(pool.size):
            nursery.start_soon(pool.rows, ONE)
    async with open_pool(pool.connector.dsn, size=1) as killer:
        await sql(killer, f"select pg_terminate_backend(pid) from ({OTHERS.strip()}) others")  # noqa: S608
    for _ in range(2 * pool.size):
        assert (await pool.rows(ONE))[0]["one"] == 1
    assert pool.idle == pool.size


async def test_no_server_is_store_unavailable_without_the_password() -> None:
    """The error says what is wrong and keeps the secret."""
    dsn = "postgresql://hango:hunter2@127.0.0.1:1/nothing"
    async with open_pool(dsn, size=1) as pool:
        with pytest.raises(StoreUnavailable) as caught:
            await pool.rows(ONE)
        assert "hunter2" not in f"{caught.value!r} {pool!r}"
        assert pool.idle == 1


async def test_a_closed_statement_timeout_bounds_everyone(database: str) -> None:
    """No connection may wait on locks, statements or idle transactions for a third of a lease."""
    async with open_pool(database, lease_ttl=30.0) as pool:
        for setting in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            row = (await sql(pool, "select setting from pg_settings where name = $1", setting))[0]
            assert 0 < int(row["setting"]) < 10_000


async def test_errors_of_the_body_come_out_bare(database: str) -> None:
    """Opening a pool does not wrap what goes wrong inside it."""
    with pytest.raises(ZeroDivisionError):
        async with open_pool(database):
            raise ZeroDivisionError


@pytest.mark.rule(6)
async def test_a_dead_listen_connection_is_noticed(pool: Pool) -> None:
    """D10: whoever listens is told at once that the line is dead, and can open another."""
    async with pool.listen() as rings:
        await sql(
            pool,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and query like 'LISTEN%'",
        )
        with pytest.raises(StoreUnavailable):
            await anext(rings)
    world = await make_seeded_tenant(pool)
    session = await world.session()
    async with pool.listen() as rings:
        run = await world.run(session)
        ring = await anext(rings)
        assert ring is not None
        assert ring.run_id == run.id


@pytest.mark.rule(6)
async def test_more_rings_than_fit_become_a_hint_to_look(pool: Pool) -> None:
    """A flood is neither an error nor silently lost."""
    async with pool.listen() as rings:
        await sql(
            pool,
            "select pg_notify('hango', concat_ws(' ', id, gen_random_uuid(), id))"
            " from generate_series(1, 3000), gen_random_uuid() as id",
        )
        await sql(pool, "select pg_notify('hango', 'not ours')")
        with trio.fail_after(20):
            while await anext(rings) is not None:
                pass


# --- what the database must be ----------------------------------------------------------------


@pytest.mark.rule(30)
@pytest.mark.parametrize(
    ("name", "of_the_operator", "pinned"),
    [
        ("default_transaction_isolation", "serializable", "read committed"),
        ("default_transaction_deferrable", "on", "off"),
        ("synchronous_commit", "off", "on"),
        ("idle_session_timeout", "1s", "0"),
        ("lock_timeout", "0", "8s"),
        ("statement_timeout", "1h", "8s"),
        ("client_connection_check_interval", "0", "2s"),
    ],
)
async def test_what_hango_relies_on_is_pinned(
    server: str, database: str, name: str, of_the_operator: str, pinned: str
) -> None:
    """R-F11: an operator's defaults for other programs change nothing here."""
    async with open_pool(server, size=1) as operator:
        where = urlsplit(database).path.removeprefix("/")
        await sql(operator, f"alter database {where} set {name} = '{of_the_operator}'")
    async with open_pool(database) as pool:
        assert [*(await sql(pool, f"show {name}"))[0].values()] == [pinned]


@pytest.mark.rule(30)
async def test_a_full_disk_is_known_until_a_write_is_taken(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """N24: not ready, with the reason; one line in the log when it turns, and one when it is back."""
    await sql(pool, "create table t (n int)")
    for _ in range(2):
        with pytest.raises(NotWritable, match="disk is full"):
            await sql(pool, "do $$ begin raise sqlstate '53100'; end $$")
        with pytest.raises(NotWritable, match="disk is full"):
            await pool.ping(deadline=5)
    await sql(pool, "insert into t values (1) returning n")
    await pool.ping(deadline=5)
    said = [record.getMessage() for record in caplog.records if record.name == "hango.db.health"]
    assert ["takes no writes" in text for text in said] == [True, False]
    assert said[-1] == "the database takes writes again"


async def test_a_standby_is_passed_over_and_the_next_server_tried(database: str, server: str) -> None:
    """N19: so that after a failover whichever takes writes is found."""
    async with network_to(database) as network, open_pool(server, size=1) as operator:
        port, name = urlsplit(network.url).port, urlsplit(database).path.removeprefix("/")
        several = network.url.replace(f"127.0.0.1:{port}", f"127.0.0.1:1,127.0.0.1:{port}")
        async with open_pool(several) as pool:
            await pool.ping(deadline=10)
            assert pool.connector.last_endpoint.port == port
            await sql(operator, f"alter database {name} set default_transaction_read_only = on")
            with pytest.raises(StoreUnavailable, match=r"127.0.0.1:1 cannot be reached.*standby"):
                async with open_pool(several) as later:
                    await later.ping(deadline=10)
            await sql(operator, f"alter database {name} reset default_transaction_read_only")
            async with open_pool(several) as later:
                await later.ping(deadline=10)


# --- a server on a bad day ------------------------------------------------------------------


@pytest.mark.parametrize("state", ["53200", "53400", "57P05", "58030", "40001", "25006"])
async def test_what_says_something_of_the_server_is_no_fault_of_the_statement(
    pool: Pool, state: str
) -> None:
    """Out of memory, a broken disk, a standby: all of it may pass, and none of it fails a run."""
    with pytest.raises(StoreUnavailable):
        await sql(pool, f"do $$ begin raise sqlstate '{state}'; end $$")


async def test_a_database_closed_for_maintenance_is_away_until_it_opens(
    server: str, database: str
) -> None:
    """An operator's `allow_connections false` ends no process; nor does a login taken away."""
    name = urlsplit(database).path.removeprefix("/")
    async with open_pool(server) as operator, open_pool(database) as pool:
        await sql(pool, "select 1")
        await sql(operator, f"alter database {name} allow_connections false")
        await sql(
            operator, "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name
        )
        with pytest.raises(StoreUnavailable, match="refuses"):
            await pool.ping(deadline=5)
        await sql(operator, f"alter database {name} allow_connections true")
        await pool.ping(deadline=5)


async def test_a_connection_to_a_standby_is_not_kept(database: str) -> None:
    """After a failover the next write goes to whoever is the primary then."""
    async with open_pool(database, size=1) as pool:
        await sql(pool, "set default_transaction_read_only = on")
        with pytest.raises(StoreUnavailable):
            await sql(pool, "create table t ()")
        await sql(pool, "create table t ()")
