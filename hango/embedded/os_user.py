"""Whom the server runs as: Postgres refuses to run as root, so root hands it to somebody else.

One rule: no account is ever created.  What exists decides: the owner of the data, else ``nobody``.
Used within this package only.
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
_LONGEST_COMMAND = 300.0  # seconds; initdb on a slow disk takes tens


@attrs.frozen
class Account:
    """A user of the system.

    Attributes:
        drop: whether this process is root and has to become that user for each command.
    """

    uid: int
    gid: int
    drop: bool

    @property
    def name(self) -> str:
        """Its name, or its number where it has none."""
        return user_name(self.uid)

    def own(self, path: Path) -> None:
        """Give *path*, which this process has just made, to the account."""
        if self.drop:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def run(
        self, command: Sequence[str | Path], *, library_path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* as the account, in a session of its own; return what came of it.

        Raises:
            OSError: the program cannot be run; PermissionError when the account may not reach it.
            EmbeddedPostgresError: this root may not become another user, or it takes for ever.
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
                timeout=_LONGEST_COMMAND,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedPostgresError(f"{command[0]} has not ended in {error.timeout} s") from error
        except OSError as error:
            # a program that may not be run is EACCES; these come from becoming the user
            if not self.drop or error.errno not in (errno.EPERM, errno.EINVAL):
                raise
            raise EmbeddedPostgresError(
                f"this root may not become user {self.name} ({error.strerror}), and Postgres does not "
                "run as root.  Run hango as another user, or set HANGO_DATABASE_URL"
            ) from error


def user_name(uid: int) -> str:
    """Return the name of user *uid*, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def choose_account(cluster: Path, data_dir: Path) -> Account:
    """Choose who runs the server of *cluster* (which may not exist yet) in *data_dir*.

    Raises:
        EmbeddedPostgresError: the data belong to somebody this process cannot be, or to root.
    """
    me = os.geteuid()
    owner = _owner(cluster)
    if me != 0:
        if owner not in (None, me):
            raise EmbeddedPostgresError(
                f"{cluster} belongs to user {user_name(owner)}, this is {user_name(me)}.  Run hango as "
                f"{user_name(owner)}, or choose another HANGO_DATA_DIR"
            )
        return Account(me, os.getegid(), drop=False)
    if owner == 0:
        raise EmbeddedPostgresError(
            f"{cluster} belongs to root, and Postgres does not run as root.  "
            f"Give it to another user (chown -R), or choose another HANGO_DATA_DIR"
        )
    return _account_for_root(owner or _owner(data_dir) or None)


def _account_for_root(owner: int | None) -> Account:
    try:
        entry = pwd.getpwnam("nobody") if owner is None else pwd.getpwuid(owner)
    except KeyError:
        whom = "nobody" if owner is None else f"number {owner}, whose the data folder is"
        raise EmbeddedPostgresError(
            f"Postgres does not run as root, and there is no user {whom}.  "
            "Run hango as another user, or set HANGO_DATABASE_URL"
        ) from None
    account = Account(entry.pw_uid, entry.pw_gid, drop=True)
    account.run(["/bin/sh", "-c", ":"])  # in a container root may be unable to become anybody
    return account


def _owner(path: Path) -> int | None:
    """Return the owner of *path*, or None where there is nothing."""
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _environment(library_path: Path | None) -> Mapping[str, str]:
    """Make the environment of Postgres: no PG* of somebody else's, and no secrets of ours."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if library_path:
        kept["LD_LIBRARY_PATH"] = os.fspath(library_path)
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "TZ": "UTC"}
