"""The Postgres that is measured: as in production, so every commit is flushed to the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from hango.db.migrations import migrate
from hango.embedded import embedded_postgres
from hango.testing.databases import temporary_database, with_database

SERVER_SETTING = "HANGO_BENCH_DATABASE_URL"
"""Names, with a superuser's URL, a server on this machine to use instead of an embedded one."""

# No checkpoint within a round: the pages written in full after one would be charged to a random line.
_SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "8GB", "max_connections": "200"}


@contextmanager
def bench_server() -> Iterator[str]:
    """Run a Postgres; yields a superuser's URL of its maintenance database."""
    if url := os.environ.get(SERVER_SETTING):
        yield url
        return
    folder = Path(tempfile.mkdtemp(prefix="hango-bench-"))
    try:
        with embedded_postgres(folder, settings=_SETTINGS) as dsn:
            yield with_database(dsn, "postgres")
    finally:
        shutil.rmtree(folder)


@contextmanager
def bench_database(server: str) -> Iterator[str]:
    """Create an empty database with hango's schema; yields its URL."""
    with temporary_database(server) as url:
        trio.run(migrate, url)
        yield url
