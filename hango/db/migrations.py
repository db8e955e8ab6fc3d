"""The schema of a database: bringing it up to date, and telling how far it is.

One rule: forward only.  A file, once applied anywhere, never changes; each runs in a transaction of
its own, which also records it.  One advisory lock, held by the connection from before the table of
applied migrations exists, makes processes that start together take turns; it goes with the
connection, so a process that dies leaves nothing behind.

Used by `hango.app` and `hango.cli`: every command that opens the database migrates first.  Needs a
connection of its own to Postgres: behind a pooler that lends connections by the transaction, the lock
would be lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from importlib.resources.abc import Traversable
from typing import NoReturn, TypeVar

import asyncpg
import attrs
import trio_asyncio

from hango.db.connections import Connection, Connector
from hango.db.failures import BROKEN
from hango.db.migration_files import AppliedMigration, Migration, check_history, read_migrations
from hango.db.queries import sql_folder
from hango.errors import MigrationError, NotSent, StoreError, StoreUnavailable

OLDEST_POSTGRES = 15

_LOCK = 0x68616E676F  # "hango": any constant, as long as it never changes
_LEASE_TTL = 90.0  # seconds; of no matter here, but that settings are those of every other connection
_CLOSE_TIMEOUT = 5.0  # seconds

_WAIT_FOR_TURN = "set statement_timeout = 0; set lock_timeout = 0; select pg_advisory_lock({})"
# Migrations may take long.  What they may not do is wait for a table for ever, with the queries of
# all running processes queued up behind them.
_PATIENCE = "set lock_timeout = '60s'"
_CREATE_TABLE = """
create table hango_migrations (
    number int primary key check (number >= 1),
    name text not null unique,
    sha256 text not null check (sha256 ~ '^[0-9a-f]{64}$'),
    applied_at timestamptz not null default now()
)
"""
_HAS_TABLE = "select to_regclass('hango_migrations') is not null"
_LIST = "select number, name, sha256, applied_at from hango_migrations order by number"
_RECORD = "insert into hango_migrations (number, name, sha256) values ($1, $2, $3)"

T = TypeVar("T")


@attrs.frozen
class MigrationStatus:
    """One migration, as a database sees it.

    Attributes:
        name: file name without ``.sql``, such as ``0001_initial``.
        applied_at: database clock, with time zone; None when it is still to be applied.
    """

    name: str
    applied_at: datetime | None


async def migrate(dsn: str) -> tuple[str, ...]:
    """Apply the migrations *dsn* lacks; return their names, in order, empty when up to date.

    Processes that do so at once take turns.  If cancelled midway, every migration has been applied
    whole or not at all.

    Raises:
        ConfigError: *dsn* cannot be used.
        StoreUnavailable: no database there, or it went away; the message has no password.
        MigrationError: a migration failed (the earlier ones stay), or the database and this
            version of hango do not fit; the message names the file.
    """
    return await apply_migrations(dsn, sql_folder().joinpath("migrations"))


async def apply_migrations(dsn: str, folder: Traversable) -> tuple[str, ...]:
    """Do as `migrate` does, with the files of *folder*."""
    migrations = read_migrations(folder)

    async def unit(connection: Connection) -> tuple[str, ...]:
        return await _bring_up_to_date(connection, migrations)

    return await _with_connection(dsn, unit)


async def migration_status(dsn: str) -> tuple[MigrationStatus, ...]:
    """Return every migration of this version of hango, in order.  Changes nothing.

    Raises:
        ConfigError: *dsn* cannot be used.
        StoreUnavailable: no database there, or it went away; the message has no password.
        MigrationError: the database and this version of hango do not fit.
    """
    migrations = read_migrations(sql_folder().joinpath("migrations"))

    async def unit(connection: Connection) -> tuple[MigrationStatus, ...]:
        applied = await _list_applied(connection)
        check_history(migrations, applied)
        return tuple(_status(migration, applied.get(migration.number)) for migration in migrations)

    return await _with_connection(dsn, unit)


def _status(migration: Migration, row: AppliedMigration | None) -> MigrationStatus:
    return MigrationStatus(migration.name, row.applied_at if row else None)


async def _bring_up_to_date(connection: Connection, migrations: Sequence[Migration]) -> tuple[str, ...]:
    await connection.execute(_WAIT_FOR_TURN.format(_LOCK))
    await connection.execute(_PATIENCE)
    await _ensure_table(connection)
    applied = await _list_applied(connection)
    check_history(migrations, applied)
    pending = [migration for migration in migrations if migration.number not in applied]
    for migration in pending:
        await _apply(connection, migration)
    return tuple(migration.name for migration in pending)


async def _ensure_table(connection: Connection) -> None:
    # not "create if not exists": that asks for the right to create even when there is nothing to do
    if await connection.fetchval(_HAS_TABLE):
        return
    try:
        await connection.execute(_CREATE_TABLE)
    except asyncpg.PostgresError as error:
        _reraise(error, "the table of applied migrations (hango_migrations) cannot be created")


async def _list_applied(connection: Connection) -> Mapping[int, AppliedMigration]:
    """Return the database's history by number, oldest first; empty before the first migration."""
    if not await connection.fetchval(_HAS_TABLE):
        return {}
    return {row["number"]: AppliedMigration(**row) for row in await connection.fetch(_LIST)}


async def _apply(connection: Connection, migration: Migration) -> None:
    try:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(_RECORD, migration.number, migration.name, migration.sha256)
    except asyncpg.PostgresError as error:
        _reraise(error, f"{migration.name}.sql")


def _reraise(error: asyncpg.PostgresError, what: str) -> NoReturn:
    if isinstance(error, BROKEN):
        raise error
    raise MigrationError(f"{what}: {error}") from error


async def _with_connection(dsn: str, unit: Callable[[Connection], Awaitable[T]]) -> T:
    """Run *unit* on a connection of its own, in one hop to an asyncio loop of its own.

    Its own, because commands migrate before anything else of the store is open.  Errors are carried
    out of the loop by hand: leaving it, they would be wrapped in exception groups.
    """
    connector = Connector.to(dsn, _LEASE_TTL)
    async with trio_asyncio.open_loop() as loop:
        try:
            result: T = await trio_asyncio.aio_as_trio(_run_unit, loop=loop)(connector, unit)
            return result
        except StoreError as error:
            failure = error
    raise failure


async def _run_unit(connector: Connector, unit: Callable[[Connection], Awaitable[T]]) -> T:
    connection = await _connect(connector)
    try:
        _check_version(connection)
        return await unit(connection)
    except BROKEN as error:
        raise StoreUnavailable(f"the database at {connector.url} went away: {error}") from error
    finally:
        with contextlib.suppress(asyncpg.PostgresError, *BROKEN):
            await connection.close(timeout=_CLOSE_TIMEOUT)


def _check_version(connection: Connection) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_POSTGRES:
        raise MigrationError(
            f"the server is Postgres {version.major}; hango needs {OLDEST_POSTGRES} or newer"
        )


async def _connect(connector: Connector) -> Connection:
    try:
        return await connector.connect()
    except NotSent as error:
        raise StoreUnavailable(
            f"{error}.  Is it running, and is HANGO_DATABASE_URL right?  Without that setting hango "
            "starts a Postgres of its own"
        ) from error
