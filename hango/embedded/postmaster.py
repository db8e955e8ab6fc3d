"""The running server: seeing it, starting it, stopping it.

One rule: the truth is ``postmaster.pid``, which Postgres writes, and whether that process is a Postgres
of this cluster; so a server that somebody restarted from outside is seen as well.  Only in one's own
turn.  Used within this package only.
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
from hango.embedded.os_user import Account
from hango.embedded.paths import PORT, Folders, open_private
from hango.errors import EmbeddedPostgresError

_LONGEST_START = 300.0  # seconds; after a crash it reads the log of what was being written
_LONGEST_STOP = 60.0  # seconds; writes out what is in memory
_PAUSE = 0.02  # seconds between two looks
_ORPHANS_GO = 30.0  # seconds; processes of a server that was killed end by themselves
_LONGEST_LOG = 10_000_000  # bytes; a longer one is put aside at the next start
_LONGEST_QUOTE = 2000  # characters of the log in an error
_SETTING = re.compile(r"[a-z_][a-z0-9_.]*", re.ASCII)
# Detaches from whoever starts it: the server is nobody's child, and no key pressed here reaches it.
_DETACHED = 'log="$1"; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'


@attrs.frozen
class Postmaster:
    """What ``postmaster.pid`` says of a live server.

    Attributes:
        socket: the folder of its socket; None while it has not made one.
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
    """Tell whether process *pid* lives and is a Postgres of *cluster*, not one that got its number."""
    try:
        # a Postgres works in its cluster; Linux tells, to whom may look into the process
        return os.path.samefile(f"/proc/{pid}/cwd", cluster)  # noqa: PTH121 - a link only the kernel follows
    except OSError:
        return f"-D {cluster}" in _command_line(pid)


def _command_line(pid: int) -> str:
    """Return the command line of *pid*; empty when there is no such process, or only its remains."""
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
    folders: Folders, installation: Installation, account: Account, settings: Mapping[str, str]
) -> None:
    """Start the server, in a process session of its own, and wait until it is ready.

    Everything it needs is in its command line and the cluster, so that it can be restarted from there.

    Raises:
        EmbeddedPostgresError: it did not start; has the end of its log.
    """
    _drop_stale_locks(folders, account)
    _prepare_log(folders.log, account)
    command = _command(folders, installation, account, settings)
    until = time.monotonic() + _ORPHANS_GO
    while True:
        said = _Log.at_end(folders.log)
        done = account.run(
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
    folders: Folders, installation: Installation, account: Account, settings: Mapping[str, str]
) -> list[str]:
    wanted = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": str(folders.socket(account)),
        "unix_socket_permissions": "0700",
        # several processes, each with a pool, and somebody who looks
        "max_connections": "200",
        **settings,
    }
    for name in wanted:
        if not _SETTING.fullmatch(name):
            raise EmbeddedPostgresError(f"{name!r} is no name of a setting of Postgres")
    options = [part for name, value in wanted.items() for part in ("-c", f"{name}={value}")]
    return [str(installation.bindir / "postgres"), "-D", str(folders.cluster), *options]


def _became_ready(cluster: Path, pid: int) -> bool:
    """Wait for the server that was started as *pid*, or another one, to be ready; False: it ended."""

    def settled() -> bool:
        postmaster = find_postmaster(cluster)
        return postmaster.status == "ready" if postmaster else not _is_alive(pid)

    _wait(settled, _LONGEST_START, "Postgres has been starting")
    return find_postmaster(cluster) is not None


def wait_until_settled(cluster: Path) -> Postmaster | None:
    """Wait while a server is starting or stopping; return the one that is ready, or None.

    Raises:
        EmbeddedPostgresError: it does neither.
    """

    def settled() -> bool:
        postmaster = find_postmaster(cluster)
        return postmaster is None or postmaster.status == "ready"

    _wait(settled, _LONGEST_START, "Postgres has been starting or stopping")
    return find_postmaster(cluster)


def stop(cluster: Path) -> None:
    """Stop the server, if it runs, and wait until it has; connections there still are, are ended.

    Raises:
        EmbeddedPostgresError: it does not stop.
    """
    postmaster = find_postmaster(cluster)
    if postmaster is None:
        return
    os.kill(postmaster.pid, signal.SIGINT)  # what Postgres calls a fast shutdown
    _wait(lambda: find_postmaster(cluster) is None, _LONGEST_STOP, "Postgres has been stopping")


def _wait(condition: Callable[[], bool], longest: float, what: str) -> None:
    until = time.monotonic() + longest
    while not condition():
        if time.monotonic() > until:
            raise EmbeddedPostgresError(f"{what} for {longest:.0f} s")
        time.sleep(_PAUSE)


def _is_number_taken(pid: int) -> bool:
    """Tell whether *pid* is a process, or what is left of one until its parent notices its end."""
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


def _drop_stale_locks(folders: Folders, account: Account) -> None:
    """Remove lock files of a former server whose number some other process has, as after a reboot.

    Postgres itself removes one whose process is gone, but believes one whose number is taken, if only
    by the remains of a server that was killed.  It still notices, by the shared memory, when processes
    of a former server are alive.
    """
    socket_lock = folders.socket(account) / f".s.PGSQL.{PORT}.lock"
    for file in (folders.cluster / "postmaster.pid", socket_lock):
        pid = _first_number(file)
        if pid is not None and _is_number_taken(pid) and not serves(pid, folders.cluster):
            file.unlink(missing_ok=True)


def _first_number(file: Path) -> int | None:
    """Return the process that *file*, a lock file of Postgres, names; None if there is no such file."""
    lines = _lines(file)
    # Postgres writes it negative for one that serves no clients
    number = lines[0].strip().removeprefix("-") if lines else ""
    return int(number) if number.isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="surrogateescape").split("\n")
    except FileNotFoundError:
        return []


def _prepare_log(log: Path, account: Account) -> None:
    if log.exists() and log.stat().st_size > _LONGEST_LOG:
        log.rename(log.with_suffix(".log.old"))
    os.close(open_private(log, account))


@attrs.frozen
class _Log:
    """The log from a place on."""

    path: Path
    start: int

    @classmethod
    def at_end(cls, path: Path) -> _Log:
        return cls(path, path.stat().st_size)

    def since(self) -> str:
        """Return what was said since, or the end of it if that is long."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read().decode(errors="replace").strip()[-_LONGEST_QUOTE:]
