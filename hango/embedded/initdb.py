"""Making a cluster, which is what Postgres calls a folder of databases.

One rule: it is made aside and renamed, so it exists whole or not at all; only in one's own turn.
Used within this package only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hango.embedded.binaries import Installation, cluster_version
from hango.embedded.os_user import Account
from hango.embedded.paths import PORT, Folders
from hango.errors import EmbeddedPostgresError

SUPERUSER = "postgres"

_PARTIAL = "postgres.partial-"

# The command line says the same; this is for somebody who starts the server by hand, without it.
_CONFIGURATION = """
# hango: reachable through its socket only
listen_addresses = ''
port = {port}
unix_socket_directories = '{socket}'
"""


def ensure_cluster(
    folders: Folders, installation: Installation, account: Account, settings: Mapping[str, str]
) -> None:
    """Make the cluster where it is missing.

    Raises:
        EmbeddedPostgresError: initdb failed; has what it said.
    """
    _clear_leftovers(folders)
    if cluster_version(folders.cluster) is not None:
        return
    try:
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=folders.data_dir))
        account.own(partial)
        _initialize(partial, installation, account, durable=settings.get("fsync", "on") != "off")
        _configure(partial, folders.socket(account))
        partial.rename(folders.cluster)
        _sync(folders.data_dir)
    except OSError as error:
        raise EmbeddedPostgresError(f"{folders.cluster} cannot be made: {error}") from error


def _clear_leftovers(folders: Folders) -> None:
    """Remove what processes that died while making a cluster left.

    Each has a name of its own: an initdb goes on for a moment after whoever started it was killed.
    """
    for partial in folders.data_dir.glob(f"{_PARTIAL}*"):
        shutil.rmtree(partial, ignore_errors=True)


def _initialize(partial: Path, installation: Installation, account: Account, *, durable: bool) -> None:
    command: list[str | Path] = [
        installation.bindir / "initdb",
        f"--pgdata={partial}",
        f"--username={SUPERUSER}",
        # the folder is private, and root or its owner could read the files anyhow
        "--auth=trust",
        "--encoding=UTF8",
        # one collation everywhere: the system's changes with its libraries, and indexes with it
        "--locale=C",
        "--no-instructions",
        *([] if durable else ["--no-sync"]),
    ]
    done = account.run(command, library_path=installation.libraries)
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
    """Make the rename in *folder* survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
