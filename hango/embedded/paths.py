"""The folders of the embedded server, and their permissions.

Rule: the server has no password, so any process that reaches its socket has all rights.  Data and
socket are in folders that only the server's user may enter; a folder that another user may have
created is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

import attrs

from hango.embedded.data_dir import default_data_dir
from hango.embedded.os_user import OsUser, user_name
from hango.errors import EmbeddedPostgresError

PORT = 5432  # names the socket; nothing listens on the network
# macOS has 104 bytes for the path of a socket, Linux 108, either with a NUL at the end
_MAX_SOCKET_PATH = 103
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OURS = re.compile(r"postgres(\.(log|log\.old|partial-.*))?|socket|(control|turn|users)\.lock|dev\.key")


@attrs.frozen
class Folders:
    """The layout of one data folder.

    Attributes:
        data_dir: absolute, with symbolic links resolved, so that each spelling means the same server.
    """

    data_dir: Path

    @property
    def cluster(self) -> Path:
        """The data directory of Postgres; complete or absent."""
        return self.data_dir / "postgres"

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.data_dir / "postgres.log"

    @property
    def control_lock(self) -> Path:
        """Held exclusively while a process starts, joins or leaves the server."""
        return self.data_dir / "control.lock"

    @property
    def users_lock(self) -> Path:
        """Held, shared, by each process that uses the server."""
        return self.data_dir / "users.lock"

    def socket(self, os_user: OsUser) -> Path:
        """Return the folder of the socket: in the data folder if possible, else in /tmp.

        It is in /tmp if the path is too long for a socket, or has characters with a meaning in a URL
        or in a list of Postgres.  TMPDIR is not used: all processes must find the same folder.
        """
        inside = self.data_dir / "socket"
        length = len(os.fsencode(inside / f".s.PGSQL.{PORT}"))
        if length <= _MAX_SOCKET_PATH and _PLAIN.fullmatch(str(inside)):
            return inside
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        return Path(f"/tmp/hango-{os_user.uid}-{digest}")  # noqa: S108 - checked to be private


def locate(data_dir: Path | None) -> Folders:
    """Return the layout of the data folder, which need not exist.

    Raises:
        EmbeddedPostgresError: the path cannot be used, or is itself a Postgres data directory.
    """
    path = data_dir or default_data_dir()
    if _CONTROL.search(str(path)):
        raise EmbeddedPostgresError(
            f"the name of the data folder {str(path)!r} has a control character"
        )
    try:
        folders = Folders(path.expanduser().resolve())
        is_cluster = (folders.data_dir / "PG_VERSION").exists()
    except (OSError, RuntimeError) as error:
        raise EmbeddedPostgresError(f"the data folder {path} cannot be used: {error}") from error
    if is_cluster:
        version = (folders.data_dir / "PG_VERSION").read_text(errors="replace").strip()
        raise EmbeddedPostgresError(
            f"{folders.data_dir} is itself the data directory of a Postgres {version}; hango would "
            f"create its own in {folders.cluster}.  Choose another HANGO_DATA_DIR"
        )
    return folders


def make_data_dir(folders: Folders, os_user: OsUser) -> None:
    """Create the data folder, private, if it is missing, and make sure *os_user* may enter it.

    Raises:
        EmbeddedPostgresError: it cannot be created or entered; the message says why.
    """
    try:
        _make_private(folders.data_dir, os_user)
        if os_user.drop and not _may_enter(os_user, folders.data_dir):
            _open_up(folders.data_dir, os_user)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"the data folder {folders.data_dir} cannot be used: {error}.  Set HANGO_DATA_DIR to "
            f"a folder that user {user_name(os.geteuid())} may write to"
        ) from error


def _make_private(path: Path, os_user: OsUser) -> None:
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            parent.chmod(0o755)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        os_user.own(path)


def _open_up(data_dir: Path, os_user: OsUser) -> None:
    """Give the folder to *os_user*, who cannot enter it; fails if a parent folder is the reason."""
    blocker = next(
        path for path in [*reversed(data_dir.parents), data_dir] if not _may_enter(os_user, path)
    )
    if blocker == data_dir and all(_OURS.fullmatch(entry.name) for entry in data_dir.iterdir()):
        os_user.own(data_dir)
        data_dir.chmod(0o700)
        return
    raise EmbeddedPostgresError(
        f"Postgres runs as user {os_user.name}, since root may not run it, and {os_user.name} cannot "
        f"reach the data folder {data_dir}: {blocker} may not be entered.  Set HANGO_DATA_DIR to "
        f"another folder, such as {default_data_dir()}, or let others enter {blocker} (chmod o+x)"
    )


def _may_enter(os_user: OsUser, path: Path) -> bool:
    return os_user.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", path]).returncode == 0


def open_private(path: Path, os_user: OsUser) -> int:
    """Open the file *path*, created for *os_user* if missing; return its descriptor.

    Raises:
        EmbeddedPostgresError: it cannot be opened, or is a link, which another user may have made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedPostgresError(f"the data folder cannot be used: {error}") from error
    if os_user.drop:
        os.fchown(descriptor, os_user.uid, os_user.gid)
    return descriptor


def make_socket_folder(path: Path, os_user: OsUser) -> None:
    """Create the folder of the socket, private, if it is missing.

    Raises:
        EmbeddedPostgresError: it cannot be created, or another user may have created it.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise EmbeddedPostgresError(f"the folder of the socket cannot be created: {error}") from error
    else:
        os_user.own(path)
    check_private(path, os_user)


def check_private(path: Path, os_user: OsUser) -> None:
    """Check that *path* is a folder that belongs to *os_user* and that no other user may enter.

    Raises:
        EmbeddedPostgresError: it is not.
    """
    try:
        found = path.lstat()
    except OSError as error:
        raise EmbeddedPostgresError(f"the folder of the socket is gone: {error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os_user.uid or found.st_mode & 0o077:
        raise EmbeddedPostgresError(
            f"{path} must be a folder that only user {os_user.name} may enter (mode 0700).  "
            "Another user may have created it: inspect it, and remove it"
        )
