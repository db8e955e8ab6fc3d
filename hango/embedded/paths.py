"""The folders of the embedded server: where things are, and who may see them.

One rule: the server has no password, so whoever reaches its socket is its master.  Data and socket
therefore lie in folders that only its own user may enter, and a folder that somebody else could have
made is refused.  Used within this package only.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

import attrs
import platformdirs

from hango.embedded.os_user import Account, user_name
from hango.errors import EmbeddedPostgresError

PORT = 5432  # names the socket; nothing listens on the network
# macOS has 104 bytes for the path of a socket, Linux 108, either with a NUL at the end
_LONGEST_SOCKET = 103
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OURS = re.compile(r"postgres(\.(log|log\.old|partial-.*))?|socket|(turn|users)\.lock")


@attrs.frozen
class Folders:
    """The layout of one data folder.

    Attributes:
        data_dir: absolute, symbolic links resolved: however it is spelled, it is one server.
    """

    data_dir: Path

    @property
    def cluster(self) -> Path:
        """What Postgres calls its data directory; exists whole or not at all."""
        return self.data_dir / "postgres"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.data_dir / "postgres.log"

    @property
    def turn_lock(self) -> Path:
        """Held exclusively while a process decides about starting or stopping."""
        return self.data_dir / "turn.lock"

    @property
    def users_lock(self) -> Path:
        """Held, shared, by every process that uses the server."""
        return self.data_dir / "users.lock"

    def socket(self, account: Account) -> Path:
        """Return the folder of the socket: in the data folder, or in /tmp if that is no place for one.

        A path that is long, or whose characters mean something in a URL or in a list of Postgres, is
        none.  Not the temp folder of TMPDIR: processes with different ones must find the same.
        """
        inside = self.data_dir / "socket"
        length = len(os.fsencode(inside / f".s.PGSQL.{PORT}"))
        if length <= _LONGEST_SOCKET and _PLAIN.fullmatch(str(inside)):
            return inside
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        return Path(f"/tmp/hango-{account.uid}-{digest}")  # noqa: S108 - checked to be private


def locate(data_dir: Path | None) -> Folders:
    """Find the data folder; it need not exist.

    Raises:
        EmbeddedPostgresError: there can be no such folder, or it is a cluster itself.
    """
    path = data_dir or default_data_dir()
    if _CONTROL.search(str(path)):
        raise EmbeddedPostgresError(
            f"the data folder {str(path)!r} has a control character in its name"
        )
    try:
        folders = Folders(path.expanduser().resolve())
        is_cluster = (folders.data_dir / "PG_VERSION").exists()
    except (OSError, RuntimeError) as error:
        raise EmbeddedPostgresError(f"the data folder {path} cannot be used: {error}") from error
    if is_cluster:
        version = (folders.data_dir / "PG_VERSION").read_text(errors="replace").strip()
        raise EmbeddedPostgresError(
            f"{folders.data_dir} is the data folder of a Postgres {version} itself; hango's holds "
            f"one, in {folders.cluster}.  Choose another HANGO_DATA_DIR"
        )
    return folders


def default_data_dir() -> Path:
    """Return the user's data folder; root's own may not be entered by those it drops to."""
    if os.geteuid() == 0:
        return Path("/var/lib/hango")
    return platformdirs.user_data_path("hango", appauthor=False)


def make_data_dir(folders: Folders, account: Account) -> None:
    """Make the data folder, private, where it is missing, and see that *account* may enter it.

    Raises:
        EmbeddedPostgresError: it cannot be made, or cannot be entered; says by whom and why.
    """
    try:
        _make_private(folders.data_dir, account)
        if account.drop and not _may_enter(account, folders.data_dir):
            _open_up(folders.data_dir, account)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"the data folder {folders.data_dir} cannot be used: {error}.  Set HANGO_DATA_DIR to "
            f"a folder that user {user_name(os.geteuid())} may write to"
        ) from error


def _make_private(path: Path, account: Account) -> None:
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
        account.own(path)


def _open_up(data_dir: Path, account: Account) -> None:
    """Hand root's folder to the account that cannot enter it, if nothing else is in the way."""
    blocker = next(
        path for path in [*reversed(data_dir.parents), data_dir] if not _may_enter(account, path)
    )
    if blocker == data_dir and all(_OURS.fullmatch(entry.name) for entry in data_dir.iterdir()):
        account.own(data_dir)
        data_dir.chmod(0o700)
        return
    raise EmbeddedPostgresError(
        f"the data folder {data_dir} is out of reach for user {account.name}, who runs Postgres "
        f"because root cannot: {blocker} may not be entered.  Set HANGO_DATA_DIR to a folder "
        f"elsewhere, such as {default_data_dir()}, or let others enter {blocker} (chmod o+x)"
    )


def _may_enter(account: Account, path: Path) -> bool:
    return account.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", path]).returncode == 0


def open_private(path: Path, account: Account) -> int:
    """Open the file *path*, made for *account* where it is missing; return its descriptor.

    Raises:
        EmbeddedPostgresError: it cannot be opened, or is a link: somebody else may have put it there.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedPostgresError(f"the data folder cannot be used: {error}") from error
    if account.drop:
        os.fchown(descriptor, account.uid, account.gid)
    return descriptor


def make_socket_folder(path: Path, account: Account) -> None:
    """Make the folder of the socket, private, where it is missing.

    Raises:
        EmbeddedPostgresError: it cannot be made, or somebody else made it.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise EmbeddedPostgresError(f"the folder of the socket cannot be made: {error}") from error
    else:
        account.own(path)
    check_private(path, account)


def check_private(path: Path, account: Account) -> None:
    """Check that *path* is a folder that only *account* may enter, or make.

    Raises:
        EmbeddedPostgresError: it is not.
    """
    try:
        found = path.lstat()
    except OSError as error:
        raise EmbeddedPostgresError(f"the folder of the socket is gone: {error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or found.st_mode & 0o077:
        raise EmbeddedPostgresError(
            f"{path} should be a folder of user {account.name} that nobody else may enter (mode 0700)."
            "  Somebody else may have put it there: look at it, and remove it"
        )
