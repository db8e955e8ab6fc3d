"""Fixtures for all tests: a real Postgres, a migrated template in it, a database for each test.

One rule: what is slow is done once, and a test never sees what another one left.
``HANGO_TEST_DATABASE_URL``, a superuser's URL, names a server to use instead of one of our own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import pytest
import trio

from hango.store.embedded import embedded_postgres
from hango.store.migrations import migrate

if TYPE_CHECKING:
    from hango.store.pool import Pool

    from support.world import World

pytest_plugins = ("rules_plugin",)

# A test server may lose everything in a power cut.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Have a Postgres for the session; yields a superuser's URL of its maintenance database."""
    with contextlib.ExitStack() as stack:
        # told to end, as by a time limit, the tests end as by Ctrl-C: and stop their server
        former = signal.signal(signal.SIGTERM, signal.default_int_handler)
        stack.callback(signal.signal, signal.SIGTERM, former)
        url = os.environ.get("HANGO_TEST_DATABASE_URL")
        yield url or _with_database(stack.enter_context(_own_server()), "postgres")


@contextlib.contextmanager
def _own_server() -> Iterator[str]:
    # not pytest's tmp_path: below a folder that only root may enter, no other user's server can run
    folder = Path(tempfile.mkdtemp(prefix="hango-test-"))
    try:
        with embedded_postgres(folder, settings=_FAST) as dsn:
            yield dsn
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """Have a migrated database to copy; yields its name."""
    with _temporary_database(server, "create database {}") as name:
        trio.run(migrate, _with_database(server, name))
        yield name


@pytest.fixture
def database(server: str, template: str) -> Iterator[str]:
    """Have a migrated database of its own; yields its URL.

    Not an async fixture: what happens to the test's trio run cannot keep it from being dropped.
    """
    statement = f"create database {{}} template {template} strategy file_copy"
    with _temporary_database(server, statement) as name:
        yield _with_database(server, name)


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    """Have a database without a schema; yields its URL."""
    with _temporary_database(server, "create database {} strategy file_copy") as name:
        yield _with_database(server, name)


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    """Have an open pool on the test's database."""
    from hango.store.pool import open_pool  # noqa: PLC0415 - tests of the pure rooms do not need it

    async with open_pool(database) as opened:
        yield opened


@pytest.fixture
async def world(pool: Pool) -> World:
    """Have a tenant with people and an agent in the test's database."""
    from support.world import make_world  # noqa: PLC0415 - as above

    return await make_world(pool)


@contextlib.contextmanager
def _temporary_database(server: str, statement: str) -> Iterator[str]:
    name = f"hango_test_{uuid.uuid4().hex}"
    _execute(server, statement.format(name))
    try:
        yield name
    finally:
        _execute(server, f"drop database {name} with (force)")


def _with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _execute(url: str, statement: str) -> None:
    async def unit() -> None:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(unit())
