"""The Postgres that is measured: as in production, so every commit is flushed to the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import trio

from hango.db.migrations import migrate
from hango.testing.databases import postgres_server, temporary_database

SERVER_SETTING = "HANGO_BENCH_DATABASE_URL"
"""Names, with a superuser's URL, a server on this machine to use instead of an embedded one."""

# No checkpoint within a round: the pages written in full after one would be charged to a random line.
_SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "8GB", "max_connections": "200"}


def bench_server() -> AbstractContextManager[str]:
    """Run a Postgres; yields a superuser's URL of its maintenance database."""
    return postgres_server(SERVER_SETTING, _SETTINGS)


@contextmanager
def bench_database(server: str) -> Iterator[str]:
    """Create an empty database with hango's schema; yields its URL."""
    with temporary_database(server) as url:
        trio.run(migrate, url)
        yield url
