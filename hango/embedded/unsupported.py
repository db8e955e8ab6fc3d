"""The embedded Postgres where there is none: on Windows.

One rule: importing hango works everywhere; only asking for the server fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType

from hango.errors import EmbeddedPostgresError


def embedded_postgres(
    data_dir: Path | None = None,
    bindir: Path | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AbstractContextManager[str]:
    """Refuse.

    Raises:
        EmbeddedPostgresError: always.
    """
    del data_dir, bindir, settings
    raise EmbeddedPostgresError(
        "hango runs a Postgres of its own on Linux and macOS only.  Set HANGO_DATABASE_URL to a server"
    )
