"""The embedded server, from the point of view of one process: there while the context is.

One rule: start and stop are decided in one's own turn.  The first process starts the server, the
others join it, the last one to leave stops it; one that is killed leaves it running for the next.
Used through `hango.embedded`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import asyncpg
import attrs

from hango.embedded import locks, postmaster
from hango.embedded.binaries import find_installation
from hango.embedded.initdb import SUPERUSER, ensure_cluster
from hango.embedded.os_user import Account, choose_account
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
_LONGEST_GOODBYE = 30.0  # seconds; a process that ends waits no longer for its turn

_IS_THERE = "select exists (select from pg_database where datname = $1)"

_log = logging.getLogger(__name__)


@contextmanager
def embedded_postgres(
    data_dir: Path | None = None,
    bindir: Path | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Have a Postgres in *data_dir*; yields the URL of its database ``hango``.

    Blocks: for before trio runs, or for a thread.  Processes on one folder share one server; *bindir*
    and *settings* matter to the one that starts it.

    Args:
        data_dir: made where it is missing; None is the user's data folder.
        bindir: the folder of the programs of Postgres; None looks for one.
        settings: more settings of the server, by name; for tests, ``{"fsync": "off"}``.

    Raises:
        EmbeddedPostgresError: there can be none; the message says what to install or change.
    """
    server = _Server.prepare(data_dir, bindir, settings)
    folders, account = server.folders, server.account
    with (
        locks.open_lock(folders.turn_lock, account) as turn,
        locks.open_lock(folders.users_lock, account) as users,
    ):
        try:
            yield server.enter(turn, users)
        finally:
            server.leave(turn, users)


@attrs.frozen
class _Server:
    """What one call was asked for; knows nothing about whether the server runs."""

    folders: Folders
    account: Account
    bindir: Path | None
    settings: Mapping[str, str]

    @classmethod
    def prepare(
        cls, data_dir: Path | None, bindir: Path | None, settings: Mapping[str, str]
    ) -> _Server:
        folders = locate(data_dir)
        account = choose_account(folders.cluster, folders.data_dir)
        make_data_dir(folders, account)
        return cls(folders, account, bindir, settings)

    def enter(self, turn: int, users: int) -> str:
        """Join, and start the server as the first; return the URL of its database."""
        try:
            with locks.own_turn(turn):
                locks.join(users)
                return self._ensure_ready()
        except OSError as error:
            raise EmbeddedPostgresError(f"{self.folders.data_dir} cannot be used: {error}") from error

    def _ensure_ready(self) -> str:
        """Start the server unless it runs; return the URL of its database, which is there."""
        running = postmaster.wait_until_settled(self.folders.cluster)
        if running is None:
            self._start()
            running = postmaster.wait_until_settled(self.folders.cluster)
        if running is None or running.socket is None:
            raise EmbeddedPostgresError(f"Postgres ended as soon as it ran; see {self.folders.log}")
        check_private(running.socket, self.account)
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(_ensure_database(running.socket, running.port))
        return _dsn(running.socket, running.port, DATABASE)

    def _start(self) -> None:
        installation = find_installation(self.bindir, self.account, self.folders.cluster)
        make_socket_folder(self.folders.socket(self.account), self.account)
        ensure_cluster(self.folders, installation, self.account, self.settings)
        postmaster.start(self.folders, installation, self.account, self.settings)

    def leave(self, turn: int, users: int) -> None:
        """Leave, and stop the server as the last.  Never fails: whoever leaves has done their work."""
        try:
            with locks.own_turn(turn, longest=_LONGEST_GOODBYE):
                if locks.leave(users):
                    postmaster.stop(self.folders.cluster)
        except (EmbeddedPostgresError, OSError) as error:
            _log.warning("the embedded Postgres is left running: %s", error)


def _dsn(socket: Path, port: int, database: str) -> str:
    return f"postgresql://{SUPERUSER}@/{database}?host={socket}&port={port}"


async def _ensure_database(socket: Path, port: int) -> None:
    """Make the database where it is missing; shows as well that the server answers."""
    try:
        connection = await asyncpg.connect(_dsn(socket, port, "postgres"), timeout=_CONNECT_TIMEOUT)
        try:
            if not await connection.fetchval(_IS_THERE, DATABASE):
                await connection.execute(f"create database {DATABASE}")
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError) as error:
        raise EmbeddedPostgresError(f"Postgres runs, but does not serve: {error}") from error
