"""The socket the server listens on: an address and port, or a path of the file system.

Rule: no other server loses its socket.  A path is taken only if nothing is there, or a socket on
which no process listens any more; otherwise an OSError says what is there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

BACKLOG = 1024  # connections the kernel holds until they are accepted
UNIX = "unix:"
_LOCK_TRIES = 50  # of 20 ms: what the lock is held for takes less than one


@contextmanager
def listening(bind: str) -> Iterator[tuple[trio.SocketListener, str]]:
    """Listen on *bind*; yields the listener and its URL.

    At the end the socket is closed, and a path removed.

    Args:
        bind: ``host:port``, ``[address]:port`` or ``unix:/path``; port 0 takes a free one.

    Raises:
        OSError: *bind* cannot be listened on.
    """
    if bind.startswith(UNIX):
        path = Path(bind.removeprefix(UNIX))
        with _listen_on_path(path) as server:
            yield _listener(server), f"http://{bind}"
        return
    host, _, port = bind.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), int(port)), family=family, backlog=BACKLOG) as server:
        name, number = server.getsockname()[:2]
        yield (
            _listener(server),
            f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}",
        )


def _listener(server: socket.socket) -> trio.SocketListener:
    server.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(server))


@contextmanager
def _listen_on_path(path: Path) -> Iterator[socket.socket]:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with server:
        with _one_at_a_time(path.parent):
            _make_room(path)
            _bind(server, path)
            server.listen(BACKLOG)
        mine = path.lstat().st_ino
        yield server
        with suppress(OSError):
            if path.lstat().st_ino == mine:
                path.unlink()


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock on *folder*: between `bind` and `listen` a socket looks like a stale one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(_LOCK_TRIES):
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _make_room(path: Path) -> None:
    """Remove a socket that no process listens on; raise an OSError for anything else."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(
            errno.EEXIST, "there is something that is not a socket; remove it or choose another path"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # its backlog is full: it is in use
    raise OSError(errno.EADDRINUSE, "another process listens there")


def _bind(server: socket.socket, path: Path) -> None:
    try:
        server.bind(str(path))
    except OSError as error:
        if error.errno is not None:
            raise
        # Python's own check, which comes without a number
        length = len(os.fsencode(path))
        raise OSError(
            errno.ENAMETOOLONG, f"a path of {length} bytes is too long for a socket; use at most 100"
        ) from None
