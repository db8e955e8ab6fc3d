"""What an embedded Postgres survives: killed owners, kills, restarts from outside, reboots."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hango.embedded import embedded_postgres
from hango.embedded.binaries import find_installation
from hango.embedded.os_user import choose_os_user
from hango.embedded.postmaster import serves

from support.embedded import (
    FAST,
    ask,
    folders_of,
    holders,
    kill_server,
    running,
    temporary_folder,
    until,
)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Have a data folder that does not exist yet."""
    with temporary_folder() as folder:
        yield folder / "data"


def test_it_survives_a_killed_owner_and_is_reused(data_dir: Path) -> None:
    """Kill -9 of the only user leaves it running; the next process uses the same, then stops it."""
    with holders(data_dir) as [first]:
        first.wait()
        server = running(data_dir)
        first.kill()
        assert running(data_dir) == server
        with embedded_postgres(data_dir, settings=FAST) as dsn:
            assert running(data_dir) == server
            assert ask(dsn, "select 1") == 1
    assert running(data_dir) is None


@linux_only
def test_its_own_command_line_restarts_it(data_dir: Path) -> None:
    """Stopped from outside and run again as it was, by the same user, it serves at the same place."""
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        server = running(data_dir)
        assert server
        ask(dsn, "create table kept (x int)")
        command = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")[:-1]
        os.kill(server.pid, signal.SIGINT)
        until(lambda: running(data_dir) is None)
        _run_detached(data_dir, command)
        until(lambda: (found := running(data_dir)) and found.status == "ready")
        again = running(data_dir)
        assert again
        assert again.pid != server.pid
        assert ask(dsn, "select count(*) from kept") == 0
    assert running(data_dir) is None


def _run_detached(data_dir: Path, command: list[bytes]) -> None:
    folders = folders_of(data_dir)
    account = choose_os_user(folders.cluster, data_dir)
    line = ["/bin/sh", "-c", '"$@" >/dev/null 2>&1 </dev/null &', "sh", *map(os.fsdecode, command)]
    assert account.run(line).returncode == 0


def test_pg_ctl_restarts_it(data_dir: Path) -> None:
    """An operator's ``pg_ctl restart -D`` finds all it needs in the cluster."""
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        folders, server = folders_of(data_dir), running(data_dir)
        assert server
        account = choose_os_user(folders.cluster, data_dir)
        bindir = find_installation(None, account, folders.cluster).bindir
        log = folders.cluster / "restart.log"
        command: list[str | Path] = [
            bindir / "pg_ctl",
            "restart",
            "-w",
            "-D",
            folders.cluster,
            "-l",
            log,
            "-m",
            "fast",
        ]
        assert account.run(command).returncode == 0
        again = running(data_dir)
        assert again
        assert again.pid != server.pid
        assert ask(dsn, "show max_connections") == FAST["max_connections"]
    assert running(data_dir) is None


def test_it_recovers_after_it_was_killed(data_dir: Path) -> None:
    """Kill -9 of the server leaves its pid file; the next start recovers what was committed."""
    with holders(data_dir) as [peer]:
        ask(peer.wait().dsn, "create table kept as select 7 as x")
        kill_server(data_dir)
        with embedded_postgres(data_dir, settings=FAST) as dsn:
            assert ask(dsn, "select x from kept") == 7


def test_a_pid_file_whose_number_went_to_another_process_is_stale(data_dir: Path) -> None:
    """After a reboot the number may be anybody's, also another process of the server's own user."""
    with embedded_postgres(data_dir, settings=FAST):
        old = (folders_of(data_dir).cluster / "postmaster.pid").read_text().split("\n")
    folders = folders_of(data_dir)
    account = choose_os_user(folders.cluster, data_dir)
    stranger = int(account.run(["/bin/sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]).stdout)
    try:
        (folders.cluster / "postmaster.pid").write_text("\n".join([str(stranger), *old[1:]]))
        account.own(folders.cluster / "postmaster.pid")
        with embedded_postgres(data_dir, settings=FAST) as dsn:
            assert ask(dsn, "select 1") == 1
        assert not serves(stranger, folders.cluster)
    finally:
        os.kill(stranger, signal.SIGKILL)


def test_a_cluster_half_made_is_made_again(data_dir: Path) -> None:
    """Kill -9 while the cluster is being made leaves nothing that the next start stumbles over."""
    with holders(data_dir) as [peer]:
        until(lambda: list(data_dir.glob("postgres.partial-*/PG_VERSION")))
        peer.kill()
        assert not folders_of(data_dir).cluster.exists()
        with embedded_postgres(data_dir, settings=FAST) as dsn:
            assert ask(dsn, "select 1") == 1
    with embedded_postgres(data_dir, settings=FAST):
        assert not list(data_dir.glob("postgres.partial-*"))
