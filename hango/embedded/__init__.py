"""The embedded Postgres: a server of hango's own, shared by processes and stopped by the last one.

No state is kept in memory: files and locks decide, so any process may die at any moment.  It needs
Linux or macOS; this package can be imported everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from hango.errors import EmbeddedPostgresError

__all__ = ["embedded_postgres"]


@contextmanager
def embedded_postgres(
    data_dir: Path | None = None,
    bindir: Path | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Run a Postgres in *data_dir* while the context is open; yield the URL of its database ``hango``.

    Blocks: call it before trio runs, or in a thread.  Processes with the same folder share one server;
    *bindir* and *settings* are used by the process that starts it.

    Args:
        data_dir: created if missing; None is the user's data folder.
        bindir: the folder of the programs of Postgres; None searches for one.
        settings: additional settings of the server, such as ``{"fsync": "off"}`` for tests.

    Raises:
        EmbeddedPostgresError: it cannot be started; the message says what to install or change.
    """
    try:
        from hango.embedded.server import open_server  # noqa: PLC0415 - needs POSIX modules
    except ModuleNotFoundError as error:
        raise EmbeddedPostgresError(
            f"the embedded Postgres needs Linux or macOS ({error}).  "
            "Set HANGO_DATABASE_URL to a Postgres server"
        ) from error
    with open_server(data_dir, bindir, settings) as url:
        yield url
