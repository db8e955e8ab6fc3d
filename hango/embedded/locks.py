"""The two locks of the embedded server, both with flock.

The control lock is held while a process starts, joins or leaves the server.  The users lock is held,
shared, by every process that uses it; the process that can lock it exclusively was the last one.
The kernel releases the locks of a process that died.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hango.embedded.os_user import OsUser
from hango.embedded.paths import open_private
from hango.errors import EmbeddedPostgresError

_CONTROL_TIMEOUT = 360.0  # seconds; another process may be waiting for crash recovery
_PAUSE = 0.02  # seconds between two tries


@contextmanager
def open_lock(path: Path, os_user: OsUser) -> Iterator[int]:
    """Open the lock file *path*, created if missing; closing it releases its lock.

    Raises:
        EmbeddedPostgresError: it cannot be opened.
    """
    descriptor = open_private(path, os_user)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def control(descriptor: int, *, longest: float = _CONTROL_TIMEOUT) -> Iterator[None]:
    """Hold the control lock; wait for it at most *longest* seconds (monotonic clock).

    Raises:
        EmbeddedPostgresError: another process did not release it, or the file system has no locks.
    """
    until = time.monotonic() + longest
    while not _lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > until:
            raise EmbeddedPostgresError(
                f"another hango process has been starting or stopping Postgres here for {longest:.0f} s"
            )
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def join(descriptor: int) -> None:
    """Take the users lock, shared; only while holding the control lock, so it is free."""
    if not _lock(descriptor, fcntl.LOCK_SH):
        raise EmbeddedPostgresError("a process other than hango holds users.lock in the data folder")


def leave(descriptor: int) -> bool:
    """Release the users lock; return whether this process was the last user.

    Only while holding the control lock.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return _lock(descriptor, fcntl.LOCK_EX)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise EmbeddedPostgresError(
            f"the file system of the data folder does not support locks ({error}).  "
            "Set HANGO_DATA_DIR to a local disk"
        ) from error
    return True
