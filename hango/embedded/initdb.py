"""Creating the cluster, which is Postgres's word for a data folder.

It is created under a temporary name and renamed, so it is either complete or absent.  Only while
holding the control lock.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hango.embedded.binaries import Installation, cluster_version
from hango.embedded.os_user import OsUser
from hango.embedded.paths import PORT, Folders
from hango.errors import EmbeddedPostgresError

SUPERUSER = "postgres"

_PARTIAL = "postgres.partial-"

# As on the server's command line; for an operator who starts the server by hand.
_CONFIGURATION = """
# hango: reachable through its socket only
listen_addresses = ''
port = {port}
unix_socket_directories = '{socket}'
"""


def ensure_cluster(
    folders: Folders, installation: Installation, os_user: OsUser, settings: Mapping[str, str]
) -> None:
    """Create the cluster if it is missing.

    Raises:
        EmbeddedPostgresError: initdb failed; the message has its output.
    """
    _clear_leftovers(folders)
    if cluster_version(folders.cluster) is not None:
        return
    try:
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=folders.data_dir))
        os_user.own(partial)
        _initialize(partial, installation, os_user, durable=settings.get("fsync", "on") != "off")
        _configure(partial, folders.socket(os_user))
        partial.rename(folders.cluster)
        _sync(folders.data_dir)
    except OSError as error:
        raise EmbeddedPostgresError(f"{folders.cluster} cannot be created: {error}") from error


def _clear_leftovers(folders: Folders) -> None:
    """Remove unfinished clusters of processes that died.

    Each has a unique name: an initdb goes on for a moment after its parent was killed.
    """
    for partial in folders.data_dir.glob(f"{_PARTIAL}*"):
        shutil.rmtree(partial, ignore_errors=True)


def _initialize(partial: Path, installation: Installation, os_user: OsUser, *, durable: bool) -> None:
    command: list[str | Path] = [
        installation.bindir / "initdb",
        f"--pgdata={partial}",
        f"--username={SUPERUSER}",
        # the folder is private, and root and its owner could read the files anyway
        "--auth-local=trust",
        # never needed: the server listens on no address
        "--auth-host=reject",
        "--encoding=UTF8",
        # a fixed collation: a system upgrade may change its own, which breaks indexes
        "--locale=C",
        "--no-instructions",
        *([] if durable else ["--no-sync"]),
    ]
    done = os_user.run(command, library_path=installation.libraries)
    if done.returncode:
        raise EmbeddedPostgresError(
            f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}"
        )


def _configure(partial: Path, socket: Path) -> None:
    with (partial / "postgresql.conf").open("a") as configuration:
        configuration.write(_CONFIGURATION.format(port=PORT, socket=socket))
        configuration.flush()
        os.fsync(configuration.fileno())


def _sync(folder: Path) -> None:
    """Flush the rename in *folder* to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
