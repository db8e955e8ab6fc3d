"""Finding, starting and stopping the server process.

A server runs if ``postmaster.pid``, which Postgres writes, names a live Postgres of this cluster; so a
server that an operator restarted is found, too.  Only while holding the control lock.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from hango.embedded.binaries import Installation
from hango.embedded.os_user import OsUser
from hango.embedded.paths import PORT, Folders, open_private
from hango.errors import EmbeddedPostgresError

_START_TIMEOUT = 300.0  # seconds; includes crash recovery
_STOP_TIMEOUT = 60.0  # seconds; includes a checkpoint
_PAUSE = 0.02  # seconds between two tries
_ORPHANS_TIMEOUT = 30.0  # seconds; child processes of a killed server end by themselves
_MAX_LOG = 10_000_000  # bytes; a longer one is renamed at the next start
_MAX_QUOTE = 2000  # characters of the log in an error
_SETTING = re.compile(r"[a-z_][a-z0-9_.]*", re.ASCII)
# Detached: not a child of this process, and Ctrl-C in its terminal does not reach it.
_DETACHED = 'log="$1"; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'


@attrs.frozen
class Postmaster:
    """A live server, as described in its ``postmaster.pid``.

    Attributes:
        socket: the folder of its socket; None while it has none.
        status: ``starting``, ``ready``, ``stopping`` or ``standby``.
    """

    pid: int
    port: int
    socket: Path | None
    status: str


def find_postmaster(cluster: Path) -> Postmaster | None:
    """Return the live server of *cluster*, or None."""
    file = cluster / "postmaster.pid"
    pid, lines = _first_number(file), _lines(file)
    if pid is None or not serves(pid, cluster):
        return None
    lines += [""] * 8
    return Postmaster(
        pid=pid,
        port=int(lines[3] or PORT),
        socket=Path(lines[4]) if lines[4] else None,
        status=lines[7].strip() or "starting",
    )


def serves(pid: int, cluster: Path) -> bool:
    """Return whether process *pid* is a live Postgres of *cluster*, not one that reuses its number."""
    try:
        # the working directory of a Postgres is its cluster; only Linux has /proc
        return os.path.samefile(f"/proc/{pid}/cwd", cluster)  # noqa: PTH121 - a link only the kernel follows
    except OSError:
        return f"-D {cluster}" in _command_line(pid)


def _command_line(pid: int) -> str:
    """Return the command line of *pid*; empty if there is no such process, or it is a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        return os.fsdecode(line.replace(b"\0", b" "))
    done = subprocess.run(  # noqa: S603 - a number, to a program of the system
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
    )
    return os.fsdecode(done.stdout)


def start(
    folders: Folders, installation: Installation, os_user: OsUser, settings: Mapping[str, str]
) -> None:
    """Start the server in a new process session, and wait until it is ready.

    All it needs is in its command line and its cluster, so that it can restart from there.

    Raises:
        EmbeddedPostgresError: it did not start; the message has the end of its log.
    """
    _drop_stale_locks(folders, os_user)
    _prepare_log(folders.log, os_user)
    command = _command(folders, installation, os_user, settings)
    until = time.monotonic() + _ORPHANS_TIMEOUT
    while True:
        said = _Log.at_end(folders.log)
        done = os_user.run(
            ["/bin/sh", "-c", _DETACHED, "sh", folders.log, *command],
            library_path=installation.libraries,
        )
        if done.returncode or not done.stdout.strip().isdigit():
            raise EmbeddedPostgresError(f"Postgres could not be started: {done.stderr.strip()}")
        if _became_ready(folders.cluster, int(done.stdout)):
            return
        if "still in use" not in said.since() or time.monotonic() > until:
            raise EmbeddedPostgresError(f"Postgres did not start; {folders.log} says: {said.since()}")
        time.sleep(_PAUSE * 10)


def _command(
    folders: Folders, installation: Installation, os_user: OsUser, settings: Mapping[str, str]
) -> list[str]:
    wanted = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": str(folders.socket(os_user)),
        "unix_socket_permissions": "0700",
        # several processes, each with a pool, and an operator with psql
        "max_connections": "200",
        **settings,
    }
    for name in wanted:
        if not _SETTING.fullmatch(name):
            raise EmbeddedPostgresError(f"{name!r} is not the name of a Postgres setting")
    options = [part for name, value in wanted.items() for part in ("-c", f"{name}={value}")]
    return [str(installation.bindir / "postgres"), "-D", str(folders.cluster), *options]


def _became_ready(cluster: Path, pid: int) -> bool:
    """Wait until the server is ready; return False if process *pid* ended instead."""

    def settled() -> bool:
        postmaster = find_postmaster(cluster)
        return postmaster.status == "ready" if postmaster else not _is_alive(pid)

    _wait(settled, _START_TIMEOUT, "Postgres has been starting")
    return find_postmaster(cluster) is not None


def wait_until_settled(cluster: Path) -> Postmaster | None:
    """Wait while a server is starting or stopping; return the one that is ready, or None.

    Raises:
        EmbeddedPostgresError: it did not finish in time.
    """

    def settled() -> bool:
        postmaster = find_postmaster(cluster)
        return postmaster is None or postmaster.status == "ready"

    _wait(settled, _START_TIMEOUT, "Postgres has been starting or stopping")
    return find_postmaster(cluster)


def stop(cluster: Path) -> None:
    """Stop the server, if it runs, and wait until it has ended; open connections are closed.

    Raises:
        EmbeddedPostgresError: it did not stop in time.
    """
    postmaster = find_postmaster(cluster)
    if postmaster is None:
        return
    os.kill(postmaster.pid, signal.SIGINT)  # what Postgres calls a fast shutdown
    _wait(lambda: find_postmaster(cluster) is None, _STOP_TIMEOUT, "Postgres has been stopping")


def _wait(condition: Callable[[], bool], longest: float, what: str) -> None:
    until = time.monotonic() + longest
    while not condition():
        if time.monotonic() > until:
            raise EmbeddedPostgresError(f"{what} for {longest:.0f} s")
        time.sleep(_PAUSE)


def _is_number_taken(pid: int) -> bool:
    """Return whether a process or zombie has number *pid*."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_alive(pid: int) -> bool:
    if not _is_number_taken(pid):
        return False
    try:
        # the state comes after the name, which is in parentheses
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return True
    return state not in (b"Z", b"X")


def _drop_stale_locks(folders: Folders, os_user: OsUser) -> None:
    """Remove lock files of an earlier server if another process has its number, as after a reboot.

    Postgres itself removes a lock file if no process has the number, but trusts one whose number is
    taken, even by a zombie.  It still detects live processes of an earlier server, by shared memory.
    """
    socket_lock = folders.socket(os_user) / f".s.PGSQL.{PORT}.lock"
    for file in (folders.cluster / "postmaster.pid", socket_lock):
        pid = _first_number(file)
        if pid is not None and _is_number_taken(pid) and not serves(pid, folders.cluster):
            file.unlink(missing_ok=True)


def _first_number(file: Path) -> int | None:
    """Return the process number in *file*, a lock file of Postgres; None if there is no such file."""
    lines = _lines(file)
    # negative in single-user mode
    number = lines[0].strip().removeprefix("-") if lines else ""
    return int(number) if number.isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="surrogateescape").split("\n")
    except FileNotFoundError:
        return []


def _prepare_log(log: Path, os_user: OsUser) -> None:
    if log.exists() and log.stat().st_size > _MAX_LOG:
        log.rename(log.with_suffix(".log.old"))
    os.close(open_private(log, os_user))


@attrs.frozen
class _Log:
    """The part of the log after a position."""

    path: Path
    start: int

    @classmethod
    def at_end(cls, path: Path) -> _Log:
        return cls(path, path.stat().st_size)

    def since(self) -> str:
        """Return what was logged since; only the end if it is long."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read().decode(errors="replace").strip()[-_MAX_QUOTE:]
