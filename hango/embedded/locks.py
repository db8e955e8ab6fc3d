"""Whose turn it is, and who is there: two files locked with flock.

One rule: the kernel keeps the locks, so one that was held by a process that died is free.  A process
waits for its turn to decide, and then decides: it joins the users, or leaves them and looks whether it
was the last.  Used within this package only.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hango.embedded.os_user import Account
from hango.embedded.paths import open_private
from hango.errors import EmbeddedPostgresError

_LONGEST_TURN = 360.0  # seconds; somebody may be waiting for a recovery after a crash
_PAUSE = 0.02  # seconds between two looks


@contextmanager
def open_lock(path: Path, account: Account) -> Iterator[int]:
    """Open the file *path*, made where it is missing; closing it frees what was locked.

    Raises:
        EmbeddedPostgresError: it cannot be opened.
    """
    descriptor = open_private(path, account)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def own_turn(descriptor: int, *, longest: float = _LONGEST_TURN) -> Iterator[None]:
    """Wait for the turn of this process, at most *longest* seconds (monotonic clock), and keep it.

    Raises:
        EmbeddedPostgresError: another process keeps its turn for ever, or the file system has no locks.
    """
    until = time.monotonic() + longest
    while not _lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > until:
            raise EmbeddedPostgresError(
                f"another hango has been starting or stopping Postgres here for {longest:.0f} s"
            )
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def join(descriptor: int) -> None:
    """Count this process among the users; only in its own turn, so nobody can be in the way."""
    if not _lock(descriptor, fcntl.LOCK_SH):
        raise EmbeddedPostgresError("a process that is no hango keeps the users of Postgres locked")


def leave(descriptor: int) -> bool:
    """Leave the users; return whether this process was the last.  Only in its own turn."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return _lock(descriptor, fcntl.LOCK_EX)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise EmbeddedPostgresError(
            f"the file system of the data folder has no locks ({error}).  "
            "Set HANGO_DATA_DIR to a local disk"
        ) from error
    return True
