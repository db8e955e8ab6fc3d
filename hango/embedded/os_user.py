"""The operating-system user that Postgres runs as.

Postgres refuses to run as root, so under root it runs as the owner of the data, else as ``nobody``.
No user is ever created.
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from hango.errors import EmbeddedPostgresError

_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_COMMAND_TIMEOUT = 300.0  # seconds; initdb on a slow disk takes tens


@attrs.frozen
class OsUser:
    """A user of the operating system.

    Attributes:
        drop: whether this process is root and has to switch to this user for each command.
    """

    uid: int
    gid: int
    drop: bool

    @property
    def name(self) -> str:
        """The user name, or the number if there is none."""
        return user_name(self.uid)

    def own(self, path: Path) -> None:
        """Change the owner of *path*, which this process has just created, to this user."""
        if self.drop:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def run(
        self, command: Sequence[str | Path], *, library_path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* as this user in a new session, and wait for it.

        Raises:
            OSError: the program cannot be run; PermissionError if the user may not reach it.
            EmbeddedPostgresError: root may not switch users here, or the command timed out.
        """
        try:
            return subprocess.run(  # noqa: S603 - programs of Postgres that the operator installed
                [os.fspath(part) for part in command],
                user=self.uid if self.drop else None,
                group=self.gid if self.drop else None,
                extra_groups=[] if self.drop else None,
                env=_environment(library_path),
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                umask=0o077,
                start_new_session=True,
                timeout=_COMMAND_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedPostgresError(f"{command[0]} has not ended in {error.timeout} s") from error
        except OSError as error:
            # a program that may not be run is EACCES; these come from switching the user
            if not self.drop or error.errno not in (errno.EPERM, errno.EINVAL):
                raise
            raise EmbeddedPostgresError(
                f"root may not switch to user {self.name} here ({error.strerror}), and Postgres does "
                "not run as root.  Run hango as another user, or set HANGO_DATABASE_URL"
            ) from error


def user_name(uid: int) -> str:
    """Return the name of user *uid*, or the number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def choose_os_user(cluster: Path, data_dir: Path) -> OsUser:
    """Choose the user for the server of *cluster* (which may not exist yet) in *data_dir*.

    Raises:
        EmbeddedPostgresError: the data belong to root, or to a user this process cannot switch to.
    """
    me = os.geteuid()
    owner = _owner(cluster)
    if me != 0:
        if owner not in (None, me):
            raise EmbeddedPostgresError(
                f"{cluster} belongs to user {user_name(owner)}, this is {user_name(me)}.  Run hango as "
                f"{user_name(owner)}, or choose another HANGO_DATA_DIR"
            )
        return OsUser(me, os.getegid(), drop=False)
    if owner == 0:
        raise EmbeddedPostgresError(
            f"{cluster} belongs to root, and Postgres does not run as root.  "
            f"Give it to another user (chown -R), or choose another HANGO_DATA_DIR"
        )
    return _os_user_for_root(owner or _owner(data_dir) or None)


def _os_user_for_root(owner: int | None) -> OsUser:
    try:
        entry = pwd.getpwnam("nobody") if owner is None else pwd.getpwuid(owner)
    except KeyError:
        whom = "nobody" if owner is None else f"{owner}, the owner of the data folder"
        raise EmbeddedPostgresError(
            f"Postgres does not run as root, and there is no user {whom}.  "
            "Run hango as another user, or set HANGO_DATABASE_URL"
        ) from None
    os_user = OsUser(entry.pw_uid, entry.pw_gid, drop=True)
    os_user.run(["/bin/sh", "-c", ":"])  # fails where root may not switch users, as in some containers
    return os_user


def _owner(path: Path) -> int | None:
    """Return the owner of *path*; None if it does not exist."""
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _environment(library_path: Path | None) -> Mapping[str, str]:
    """Return the environment for Postgres programs: without PG* variables and secrets."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if library_path:
        kept["LD_LIBRARY_PATH"] = os.fspath(library_path)
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "TZ": "UTC"}
