"""An embedded Postgres under root, who may not run it: whom it is handed to, and how."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hango.embedded import binaries_for_root, embedded_postgres
from hango.embedded.binaries import find_installation
from hango.embedded.os_user import choose_os_user

from support.embedded import (
    FAST,
    PEER,
    ask,
    refused,
    running,
    temporary_folder,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Have an empty folder that the server's user may enter."""
    with temporary_folder() as path:
        yield path


def test_root_hands_the_server_to_nobody(folder: Path) -> None:
    """No user is made for it, and what the server owns is in a folder of its own."""
    before = len(pwd.getpwall())
    with embedded_postgres(folder / "data", settings=FAST):
        server = running(folder / "data")
        assert server
        assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert len(pwd.getpwall()) == before


def test_root_runs_the_server_as_whom_the_data_belong_to(folder: Path) -> None:
    """A folder made by a user stays that user's."""
    owner = pwd.getpwnam("daemon")
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    with embedded_postgres(folder, settings=FAST):
        server = running(folder)
        assert server
        assert Path(f"/proc/{server.pid}").stat().st_uid == owner.pw_uid
    assert {path.stat().st_uid for path in folder.rglob("*")} == {owner.pw_uid}


def test_a_root_that_cannot_become_another_user_is_told_so(folder: Path) -> None:
    """As in a container without the right to change users; nothing is made."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv to give up rights")
    without = [setpriv, "--bounding-set=-setuid,-setgid", "--inh-caps=-setuid,-setgid"]
    command = [*without, sys.executable, str(PEER), str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "root may not switch to user nobody" in done.stderr
    assert not (folder / "data").exists()


def test_a_cluster_of_root_is_explained(folder: Path) -> None:
    """Root cannot run Postgres, whatever it owns."""
    with embedded_postgres(folder, settings=FAST):
        pass
    os.chown(folder / "postgres", 0, 0)
    assert "belongs to root" in refused(folder)


def test_an_empty_folder_of_root_is_handed_over(folder: Path) -> None:
    """As ``mktemp -d`` makes them: only root may enter, and there is nothing in it."""
    (folder / "data").mkdir(mode=0o700)
    with embedded_postgres(folder / "data", settings=FAST) as dsn:
        assert ask(dsn, "select 1") == 1


def test_a_folder_with_something_else_in_it_stays_roots(folder: Path) -> None:
    """Nobody gets what was not made for the server."""
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o700)
    (data_dir / "secret").write_text("")
    message = refused(data_dir)
    assert f"{data_dir} may not be entered" in message
    assert data_dir.stat().st_uid == 0


def test_a_folder_out_of_the_servers_reach_is_explained(folder: Path) -> None:
    """The message names the folder in the way."""
    (folder / "private").mkdir(mode=0o700)
    message = refused(folder / "private" / "a" / "data")
    assert f"{folder / 'private'} may not be entered" in message
    assert "nobody" in message


def test_folders_on_the_way_are_made_enterable_whatever_the_umask(folder: Path) -> None:
    """A careful umask of root's does not lock its own server out."""
    before = os.umask(0o077)
    try:
        with embedded_postgres(folder / "a" / "b" / "data", settings=FAST) as dsn:
            assert ask(dsn, "select 1") == 1
    finally:
        os.umask(before)


def test_programs_only_root_can_reach_are_copied_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment below ``/root`` works: what the server needs is copied to where it can go."""
    monkeypatch.setattr(binaries_for_root, "COPIES", folder / "copies")
    bindir = _private_copy(folder)
    for _ in range(2):
        with embedded_postgres(folder / "data", bindir, FAST) as dsn:
            assert ask(dsn, "select 1") == 1
            server = running(folder / "data")
            assert server
            assert Path(f"/proc/{server.pid}/exe").readlink().is_relative_to(folder / "copies")
    [copy] = (folder / "copies").iterdir()
    assert all(path.lstat().st_uid == 0 and not path.stat().st_mode & 0o022 for path in copy.rglob("*"))


def test_copies_others_could_change_are_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that root starts come from a folder of root's alone."""
    monkeypatch.setattr(binaries_for_root, "COPIES", folder / "copies")
    (folder / "copies").mkdir()
    (folder / "copies").chmod(0o777)
    assert "writable by root only" in refused(folder / "data", _private_copy(folder))


def test_a_private_folder_that_is_no_installation_is_not_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's home is copied because a program lies in it."""
    monkeypatch.setattr(binaries_for_root, "COPIES", folder / "copies")
    bindir = folder / "private" / "bin"
    bindir.mkdir(parents=True)
    bindir.parent.chmod(0o700)
    for name in ("postgres", "initdb"):
        (bindir / name).write_text("#!/bin/sh\n")
        (bindir / name).chmod(0o755)
    assert "may not enter" in refused(folder / "data", bindir)
    assert not (folder / "copies").exists()


def _private_copy(folder: Path) -> Path:
    """Put the programs into a folder that only root may enter; return where."""
    account = choose_os_user(folder / "none", folder)
    bindir = find_installation(None, account, folder / "none").bindir
    prefix = bindir.parent
    private = folder / "private"
    private.mkdir(mode=0o700)
    target = private / prefix.parent.name / prefix.name
    shutil.copytree(prefix, target, ignore=shutil.ignore_patterns("include", "doc"))
    beside = prefix.parent.with_name(f"{prefix.parent.name}.libs")
    if beside.is_dir():
        shutil.copytree(beside, private / beside.name)
    return target / "bin"
