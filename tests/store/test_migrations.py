"""Bringing a database up to date: once, whole, by whoever comes first, whatever dies meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
import trio
import trio_asyncio

from hango.db.migrations import apply_migrations, migrate, migration_status
from hango.errors import ConfigError, MigrationError, StoreUnavailable

_PEER = Path(__file__).parents[1] / "support" / "programs" / "migrate.py"
_SLOW = "create table slow (x int); select pg_sleep(600);"
_SLEEPERS = """
select count(pid) from pg_stat_activity
 where datname = current_database() and query ~ 'pg_sleep' and pid <> pg_backend_pid()
"""


async def ask(dsn: str, statement: str) -> object:
    """Run one statement; return the first value of its answer."""

    async def unit() -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async with trio_asyncio.open_loop() as loop:
        answer: object = await trio_asyncio.aio_as_trio(unit, loop=loop)()
    return answer


@contextmanager
def migrating(dsn: str, *folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Migrate in a process of its own."""
    command = [sys.executable, str(_PEER), dsn, *map(str, folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def until_some(dsn: str, statement: str) -> None:
    """Wait until what *statement* counts is there."""
    with trio.fail_after(60):  # not to hang for ever when something is broken
        while await ask(dsn, statement) == 0:
            await trio.lowlevel.checkpoint()


def write(folder: Path, **files: str) -> Path:
    """Make a folder of migrations."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name.removeprefix('m')}.sql").write_text(text)
    return folder


def as_role(dsn: str, role: str) -> str:
    """Make the URL with which *role* reaches the same database."""
    url = urlsplit(dsn)
    return url._replace(netloc=f"{role}:{role}@{url.netloc.rpartition('@')[2]}").geturl()


async def test_an_empty_database_gets_everything_once(empty_database: str) -> None:
    """The names applied come back in order; the second time there is nothing to do."""
    names = await migrate(empty_database)
    assert names[0] == "0001_initial"
    assert await migrate(empty_database) == ()
    assert await ask(empty_database, "select count(*) from runs") == 0


async def test_the_status_tells_what_is_applied_and_changes_nothing(empty_database: str) -> None:
    """Before the first migration there is not even a table of them."""
    before = await migration_status(empty_database)
    assert before[0].name == "0001_initial"
    assert all(status.applied_at is None for status in before)
    assert await ask(empty_database, "select to_regclass('hango_migrations')") is None
    await migrate(empty_database)
    after = await migration_status(empty_database)
    assert [status.name for status in after] == [status.name for status in before]
    assert all(status.applied_at and status.applied_at.tzinfo for status in after)


async def test_it_works_where_an_asyncio_loop_runs_already(empty_database: str) -> None:
    """And leaves that loop as it was."""
    async with trio_asyncio.open_loop() as loop:
        assert await migrate(empty_database)
        assert trio_asyncio.current_loop.get() is loop


@pytest.mark.parametrize("round_number", range(10))
async def test_six_at_once_take_turns(empty_database: str, tmp_path: Path, round_number: int) -> None:
    """D13: each migration is applied by one of them, none fails, and no lock is left."""
    folder = write(tmp_path, m0001_a="create table a (x int);", m0002_b="create table b (x int);")
    applied: list[tuple[str, ...]] = []

    async def one() -> None:
        applied.append(await apply_migrations(empty_database, folder))

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(one)
    assert sorted(applied) == [()] * 5 + [("0001_a", "0002_b")], round_number
    assert await ask(empty_database, "select count(*) from pg_locks where locktype = 'advisory'") == 0


def test_six_processes_at_once_all_come_up(empty_database: str) -> None:
    """D13: real processes, on hango's own schema."""
    command = [sys.executable, str(_PEER), empty_database]
    peers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    answers = [peer.communicate()[0] for peer in peers]
    assert [peer.returncode for peer in peers] == [0] * 6
    assert sum(bool(answer) for answer in answers) == 1


async def test_a_killed_migrator_leaves_no_lock(empty_database: str, tmp_path: Path) -> None:
    """D13: kill -9 midway; its change is undone, and the next one is not kept waiting."""
    slow = write(tmp_path / "slow", m0001_a=_SLOW)
    quick = write(tmp_path / "quick", m0001_a="create table slow (y int);")
    with migrating(empty_database, slow) as peer:
        await until_some(empty_database, _SLEEPERS)
        peer.kill()
        with trio.fail_after(60):  # the statement it left would run ten minutes
            assert await apply_migrations(empty_database, quick) == ("0001_a",)
    assert await ask(empty_database, "select count(y) from slow") == 0


async def test_a_waiting_process_goes_on_when_the_first_is_killed(
    empty_database: str, tmp_path: Path
) -> None:
    """D13: not only the next one, also one that waits already."""
    slow = write(tmp_path / "slow", m0001_a=_SLOW)
    quick = write(tmp_path / "quick", m0001_a="create table slow (y int);")
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    with migrating(empty_database, slow) as first:
        await until_some(empty_database, _SLEEPERS)
        with migrating(empty_database, quick) as second:
            await until_some(empty_database, waiting)
            first.kill()
            with trio.fail_after(60):
                answer, _ = await trio.to_thread.run_sync(second.communicate, abandon_on_cancel=True)
            assert answer == "0001_a"


async def test_a_cancelled_migration_leaves_nothing(empty_database: str, tmp_path: Path) -> None:
    """Cancelled midway, a migration has not happened, and the next one can."""
    folder = write(tmp_path, m0001_a="create table kept (x int);", m0002_b=_SLOW)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(apply_migrations, empty_database, folder)
        await until_some(empty_database, _SLEEPERS)
        nursery.cancel_scope.cancel()
    assert await ask(empty_database, "select to_regclass('slow')") is None
    write(tmp_path, m0002_b="create table slow (x int);")
    assert await apply_migrations(empty_database, folder) == ("0002_b",)


async def test_a_failing_migration_is_named_and_undone(empty_database: str, tmp_path: Path) -> None:
    """The earlier ones stay; mended, it goes on from there."""
    folder = write(
        tmp_path,
        m0001_a="create table a (x int);",
        m0002_b="create table b (x int); select 1 / 0;",
        m0003_c="create table c (x int);",
    )
    with pytest.raises(MigrationError, match=r"0002_b\.sql: division by zero"):
        await apply_migrations(empty_database, folder)
    assert await ask(empty_database, "select to_regclass('b') is null and to_regclass('a') is not null")
    write(folder, m0002_b="create table b (x int);")
    assert await apply_migrations(empty_database, folder) == ("0002_b", "0003_c")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("update hango_migrations set sha256 = repeat('0', 64)", r"0001_initial\.sql: was edited"),
        (
            "update hango_migrations set name = '0001_other' where number = 1",
            r"0001_initial\.sql.*0001_other",
        ),
        (
            "insert into hango_migrations values (9999, '9999_future', repeat('0', 64))",
            r"9999_future\.sql.*newer",
        ),
        ("update hango_migrations set number = 9999 where number = 1", "newer"),
    ],
)
@pytest.mark.parametrize("call", [migrate, migration_status])
async def test_a_database_that_does_not_fit_is_refused(
    database: str, call: Callable[[str], Awaitable[object]], change: str, reason: str
) -> None:
    """Migrated by a newer version, or by files that were changed: nothing is done to it."""
    await ask(database, change)
    with pytest.raises(MigrationError, match=reason):
        await call(database)


async def test_who_may_not_create_may_still_find_it_up_to_date(database: str) -> None:
    """The right to change the schema is needed only to change it."""
    role = f"reader_{uuid4().hex}"
    await ask(database, f"create role {role} login password '{role}'")
    await ask(database, f"grant select on hango_migrations to {role}")
    try:
        reader = as_role(database, role)
        assert await migrate(reader) == ()
    finally:
        await ask(database, f"drop owned by {role}")
        await ask(database, f"drop role {role}")


async def test_who_may_not_create_is_told_so(empty_database: str) -> None:
    """The error says what was to be created."""
    role = f"reader_{uuid4().hex}"
    await ask(empty_database, f"create role {role} login password '{role}'")
    try:
        reader = as_role(empty_database, role)
        with pytest.raises(MigrationError, match=r"hango_migrations.*permission denied"):
            await migrate(reader)
    finally:
        await ask(empty_database, f"drop role {role}")


async def test_a_database_that_goes_away_midway_is_unavailable(
    empty_database: str, tmp_path: Path
) -> None:
    """That is no fault of the migration, and trying again is right."""
    folder = write(tmp_path, m0001_a=_SLOW)

    async def pull_the_plug() -> None:
        await until_some(empty_database, _SLEEPERS)
        await ask(
            empty_database, _SLEEPERS.replace("count(pid)", "bool_and(pg_terminate_backend(pid))")
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pull_the_plug)
        with pytest.raises(StoreUnavailable, match="went away"):
            await apply_migrations(empty_database, folder)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ada:s3cret@127.0.0.1:1/db",
        "postgresql://ada:s3cret@/db?host=/nonexistent",
        "postgresql://ada@/db?host=/nonexistent&password=s3cret",
        "postgresql://ada:s3cret/x@localhost/db",
        "postgresql://ada:1/s3cret@localhost/db",
        "postgresql://ada:s3cret@[::1/db",
        "postgresql://ada:s3cret@localhost:port/db",
        "mysql://ada:s3cret@localhost/db",
        "s3cret",
        "",
    ],
)
async def test_no_database_is_explained_without_the_password(dsn: str) -> None:
    """However the URL is malformed, nothing of it that may be secret is said."""
    for call in (migrate, migration_status):
        with pytest.raises((StoreUnavailable, ConfigError)) as caught:
            await call(dsn)
        assert "s3cret" not in str(caught.value)
        assert "database" in str(caught.value)


async def test_a_database_that_does_not_exist_is_named_by_the_server(server: str) -> None:
    """The reason is the server's own."""
    nowhere = urlsplit(server)._replace(path="/nowhere").geturl()
    with pytest.raises(StoreUnavailable, match=r'"nowhere" does not exist.*HANGO_DATABASE_URL'):
        await migrate(nowhere)
