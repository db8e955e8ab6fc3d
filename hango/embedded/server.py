"""The embedded server as a context manager.

The first process starts the server, others join it, and the last one to leave stops it.  A process that
is killed leaves it running for the next one.  All of this happens under the control lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import attrs

from hango.embedded import locks, postmaster
from hango.embedded.binaries import find_installation
from hango.embedded.initdb import SUPERUSER, ensure_cluster
from hango.embedded.os_user import OsUser, choose_os_user
from hango.embedded.paths import (
    Folders,
    check_private,
    locate,
    make_data_dir,
    make_socket_folder,
)
from hango.errors import EmbeddedPostgresError

DATABASE = "hango"

_CONNECT_TIMEOUT = 10.0  # seconds
_LEAVE_TIMEOUT = 30.0  # seconds that a process which ends waits for the control lock

_IS_THERE = "select exists (select from pg_database where datname = $1)"

_log = logging.getLogger(__name__)


@contextmanager
def open_server(
    data_dir: Path | None, bindir: Path | None, settings: Mapping[str, str]
) -> Iterator[str]:
    """See `hango.embedded.embedded_postgres`."""
    server = _Server.prepare(data_dir, bindir, settings)
    folders, os_user = server.folders, server.os_user
    with (
        locks.open_lock(folders.control_lock, os_user) as control,
        locks.open_lock(folders.users_lock, os_user) as users,
    ):
        try:
            yield server.enter(control, users)
        finally:
            server.leave(control, users)


@attrs.frozen
class _Server:
    """The arguments of one call; has no state of the server."""

    folders: Folders
    os_user: OsUser
    bindir: Path | None
    settings: Mapping[str, str]

    @classmethod
    def prepare(
        cls, data_dir: Path | None, bindir: Path | None, settings: Mapping[str, str]
    ) -> _Server:
        folders = locate(data_dir)
        os_user = choose_os_user(folders.cluster, folders.data_dir)
        make_data_dir(folders, os_user)
        return cls(folders, os_user, bindir, settings)

    def enter(self, control: int, users: int) -> str:
        """Join the users, start the server if needed, and return the URL of its database."""
        try:
            with locks.control(control):
                locks.join(users)
                return self._ensure_ready()
        except OSError as error:
            raise EmbeddedPostgresError(f"{self.folders.data_dir} cannot be used: {error}") from error

    def _ensure_ready(self) -> str:
        """Start the server unless it runs, create the database if missing, and return its URL."""
        running = postmaster.wait_until_settled(self.folders.cluster)
        if running is None:
            self._start()
            running = postmaster.wait_until_settled(self.folders.cluster)
        if running is None or running.socket is None:
            raise EmbeddedPostgresError(f"Postgres ended right after its start; see {self.folders.log}")
        check_private(running.socket, self.os_user)
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(_ensure_database(running.socket, running.port))
        return _dsn(running.socket, running.port, DATABASE)

    def _start(self) -> None:
        installation = find_installation(self.bindir, self.os_user, self.folders.cluster)
        make_socket_folder(self.folders.socket(self.os_user), self.os_user)
        ensure_cluster(self.folders, installation, self.os_user, self.settings)
        postmaster.start(self.folders, installation, self.os_user, self.settings)

    def leave(self, control: int, users: int) -> None:
        """Leave, and stop the server if no other process uses it.  Errors are only logged."""
        try:
            with locks.control(control, longest=_LEAVE_TIMEOUT):
                if locks.leave(users):
                    postmaster.stop(self.folders.cluster)
        except (EmbeddedPostgresError, OSError) as error:
            _log.warning("the embedded Postgres is left running: %s", error)


def _dsn(socket: Path, port: int, database: str) -> str:
    return f"postgresql://{SUPERUSER}@/{database}?host={socket}&port={port}"


async def _ensure_database(socket: Path, port: int) -> None:
    """Create the database if it is missing; this also proves that the server answers."""
    try:
        connection = await asyncpg.connect(_dsn(socket, port, "postgres"), timeout=_CONNECT_TIMEOUT)
        try:
            if not await connection.fetchval(_IS_THERE, DATABASE):
                await connection.execute(f"create database {DATABASE}")
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError) as error:
        raise EmbeddedPostgresError(f"Postgres runs, but cannot be used: {error}") from error
