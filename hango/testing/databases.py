"""Databases to test in: a real server, a migrated template in it, and a copy for each test.

One rule: what is slow is done once, and a test never sees what another one left.  Used by the plugin,
from outside trio: what happens to a test's run cannot keep its database from being dropped.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import trio

from hango.db.connections import Connection
from hango.db.migrations import migrate
from hango.db.pool import Pool, open_pool
from hango.db.queries import Row
from hango.embedded import embedded_postgres

SERVER_SETTING = "HANGO_TEST_DATABASE_URL"
"""Names, with a superuser's URL, a server to use instead of one of our own."""

# A test server may lose everything in a power cut.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_LONGEST = (
    120.0  # seconds; copying a database takes 30 ms here, and a slow disk may flush a thousand files
)


@contextmanager
def postgres_server(
    named_by: str = SERVER_SETTING, settings: Mapping[str, str] = _FAST
) -> Iterator[str]:
    """Have a Postgres; yields a superuser's URL of its maintenance database.

    Args:
        named_by: the variable that may name a server to use.
        settings: of the one that is started otherwise.

    Raises:
        EmbeddedPostgresError: none is named, and none can be started here.
    """
    url = os.environ.get(named_by)
    if url:
        yield url
        return
    # not pytest's tmp_path: below a folder that only root may enter, no other user's server can run
    folder = Path(tempfile.mkdtemp(prefix="hango-test-"))
    try:
        with embedded_postgres(folder, settings=settings) as dsn:
            yield with_database(dsn, "postgres")
    finally:
        shutil.rmtree(folder)


@contextmanager
def template_database(server: str) -> Iterator[str]:
    """Have a migrated database to copy; yields its name."""
    with temporary_database(server) as url:
        trio.run(migrate, url)
        yield urlsplit(url).path[1:]


@contextmanager
def temporary_database(server: str, template: str | None = None) -> Iterator[str]:
    """Have a database of its own, a copy of *template* or empty; yields its URL."""
    name = f"hango_test_{uuid.uuid4().hex}"
    origin = f" template {template}" if template else ""
    _execute(server, f"create database {name}{origin} strategy file_copy")
    try:
        yield with_database(server, name)
    finally:
        _execute(server, f"drop database {name} with (force)")


def with_database(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


async def sql(pool: Pool, text: str, *arguments: object) -> Sequence[Row]:
    """Run a statement of a test's own; return its rows.

    Args:
        pool: its database.
        text: the statement, with ``$1``, ``$2`` for the arguments.
        arguments: as asyncpg takes them.
    """

    async def fetch(connection: Connection) -> Sequence[Row]:
        return await connection.fetch(text, *arguments)

    return await pool.unit(fetch)


def _execute(url: str, statement: str) -> None:
    async def patiently(connection: Connection) -> None:
        await connection.execute("set statement_timeout = 0; set lock_timeout = 0")
        await connection.execute(statement)

    async def main() -> None:
        async with open_pool(url, size=1) as pool:
            await pool.unit(patiently, deadline=_LONGEST)

    trio.run(main)
