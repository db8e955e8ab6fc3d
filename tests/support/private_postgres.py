"""A Postgres of a test's own, to stop, crash and start; never the one that other tests use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hango.chaos.postgres import SETTINGS, PrivatePostgres
from hango.embedded import embedded_postgres
from hango.testing.databases import with_database

__all__ = ["PrivatePostgres", "private_postgres"]

_SETTINGS = {**SETTINGS, "max_connections": "30"}


@contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """Start a server; its URL is that of the maintenance database.  Blocks: for fixtures."""
    folder = Path(tempfile.mkdtemp(prefix="hango-away-"))
    try:
        with embedded_postgres(folder, settings=_SETTINGS) as dsn:
            yield PrivatePostgres(folder, with_database(dsn, "postgres"), settings=_SETTINGS)
    finally:
        shutil.rmtree(folder)
