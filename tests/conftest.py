"""Fixtures for all tests: those that users of hango test with, under short names.

One rule: what is slow is done once, and a test never sees what another one left.
``HANGO_TEST_DATABASE_URL``, a superuser's URL, names a server to use instead of one of our own.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from hango.testing.databases import temporary_database

if TYPE_CHECKING:
    from hango.db.pool import Pool
    from hango.testing.plugin import SeededTenant

pytest_plugins = ("rules_plugin", "hango.testing.plugin")


def pytest_configure() -> None:
    """Let Ctrl-C be Ctrl-C, also in a job that a shell has started in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server(hango_postgres: str) -> str:
    """Have a Postgres for the session: a superuser's URL of its maintenance database."""
    return hango_postgres


@pytest.fixture
def database(hango_database: str) -> str:
    """Have a migrated database of its own: its URL."""
    return hango_database


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    """Have a database without a schema; yields its URL."""
    with temporary_database(server) as url:
        yield url


@pytest.fixture
async def pool(hango_pool: Pool) -> Pool:
    """Have an open pool on the test's database."""
    return hango_pool


@pytest.fixture
async def world(hango_world: SeededTenant) -> SeededTenant:
    """Have a tenant with people and an agent in the test's database."""
    return hango_world
