"""A pytest plug-in: hango to test with, on a real Postgres, and on a clock that tests can turn.

One rule: it is asked for by name, in a ``conftest.py``, so that nobody who only has hango installed
loads it::

    pytest_plugins = ["hango.testing.plugin"]

It needs pytest-trio (``pip install "hango[embedded,testing]"``).  The server is an embedded one, for
the session; ``HANGO_TEST_DATABASE_URL``, a superuser's URL, names another.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from hango.errors import EmbeddedPostgresError
from hango.testing.clock import LeaseClock, open_pool_on_clock
from hango.testing.databases import (
    SERVER_SETTING,
    postgres_server,
    sql,
    template_database,
    temporary_database,
)
from hango.testing.seeded_tenant import SeededTenant, World, make_seeded_tenant
from hango.testing.workers import Worker

if TYPE_CHECKING:
    import httpx

    from hango.db.pool import Pool
    from hango.testing.serving import Server
    from hango.web.app import WebSettings

__all__ = ["LeaseClock", "SeededTenant", "Worker", "World", "make_seeded_tenant", "sql"]


@pytest.fixture(scope="session")
def hango_postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have a Postgres for the session; yields a superuser's URL of its maintenance database."""
    with _ended_by_sigterm(request.session), ExitStack() as stack:
        try:
            url = stack.enter_context(postgres_server())
        except EmbeddedPostgresError as error:
            error.add_note(f"For tests, a server is named by {SERVER_SETTING}.")
            raise
        yield url


@pytest.fixture(scope="session")
def hango_template(hango_postgres: str) -> Iterator[str]:
    """Have a migrated database to copy; yields its name."""
    with template_database(hango_postgres) as name:
        yield name


@pytest.fixture
def hango_database(hango_postgres: str, hango_template: str) -> Iterator[str]:
    """Have a migrated database of the test's own; yields its URL."""
    with temporary_database(hango_postgres, hango_template) as url:
        yield url


@pytest.fixture
def lease_clock() -> LeaseClock:
    """Have a clock that stands still until it is turned.

    A test with this parameter runs on it, and so do the leases in its database.
    """
    return LeaseClock()


@pytest.fixture
async def hango_pool(hango_database: str) -> AsyncIterator[Pool]:
    """Have an open pool on the test's database, on the test's clock."""
    async with open_pool_on_clock(hango_database) as pool:
        yield pool


@pytest.fixture
async def hango_world(hango_pool: Pool) -> SeededTenant:
    """Have a tenant with one user of each role, and an agent whose provider is ``fake``."""
    return await make_seeded_tenant(hango_pool)


@pytest.fixture
def hango_web_settings() -> WebSettings:
    """Say what the served API may use; override it to name tools and providers of your own."""
    from hango.web.app import WebSettings  # noqa: PLC0415 - most tests need no web server
    from hango.web.models.requests import Registered  # noqa: PLC0415

    return WebSettings(Registered(providers={"fake", "demo"}))


@pytest.fixture
async def hango_server(hango_pool: Pool, hango_web_settings: WebSettings) -> AsyncIterator[Server]:
    """Have the API served on a real socket."""
    from hango.store import Stores  # noqa: PLC0415 - as above
    from hango.testing.serving import running_server  # noqa: PLC0415 - as above

    async with running_server(Stores.on(hango_pool), hango_web_settings) as server:
        yield server


@pytest.fixture
async def hango_client(
    hango_server: Server, hango_world: SeededTenant
) -> AsyncIterator[httpx.AsyncClient]:
    """Have a client of the served API that acts as the tenant's owner."""
    from hango.testing.serving import client_of  # noqa: PLC0415 - as above

    async with client_of(hango_server, await hango_world.key()) as client:
        yield client


@contextmanager
def _ended_by_sigterm(session: pytest.Session) -> Iterator[None]:
    """Let a session that is told to end, as by a time limit, do so as by Ctrl-C, its server with it."""

    def end(_: int, frame: FrameType | None) -> None:
        session.shouldstop = "interrupted"  # the test that runs may take the interrupt for its failure
        handler = signal.getsignal(signal.SIGINT)  # within a trio run, trio's
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    former = signal.getsignal(signal.SIGTERM)
    if former is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
