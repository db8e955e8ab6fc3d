"""Where an embedded Postgres may live, which programs it takes, and what it says when it cannot."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hango.embedded import embedded_postgres
from hango.embedded.binaries import find_installation
from hango.embedded.os_user import choose_os_user

from support.embedded import (
    FAST,
    ask,
    folders_of,
    refused,
    running,
    temporary_folder,
)

as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Have an empty folder that the server's user may enter."""
    with temporary_folder() as path:
        yield path


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "Grüße-数据",
        'it\'s "quoted" $HOME `id` \\ %s',
        "a,b:c;d&e=f?g#h@i",
        "-D",
        "x" * 200,
        "/".join(["deep" * 20] * 8),
        os.fsdecode(b"not-utf-8-\xff"),
    ],
    ids=["space", "unicode", "quotes", "url", "option", "long", "deep", "bytes"],
)
def test_any_name_of_a_folder_works(folder: Path, name: str) -> None:
    """A name that cannot hold a socket gets one elsewhere, in a private folder."""
    data_dir = folder / name
    with embedded_postgres(data_dir, settings=FAST) as dsn, embedded_postgres(data_dir) as same:
        assert same == dsn
        assert ask(dsn, "select 1") == 1
        server = running(data_dir)
        assert server
        assert server.socket
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700
    assert running(data_dir) is None
    if not server.socket.is_relative_to(folder):
        server.socket.rmdir()


def test_an_existing_empty_folder_works(folder: Path) -> None:
    """Also one that is not private: what lies in it is."""
    with embedded_postgres(folder, settings=FAST) as dsn:
        assert ask(dsn, "select 1") == 1
        assert stat.S_IMODE(folders_of(folder).cluster.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_socket_folder_somebody_else_may_enter_is_refused(folder: Path) -> None:
    """Whoever could put a socket there could be taken for the database."""
    data_dir = folder / ("x" * 120)
    account = choose_os_user(folders_of(data_dir).cluster, data_dir)
    socket = folders_of(data_dir).socket(account)
    socket.mkdir()
    try:
        socket.chmod(0o755)
        assert str(socket) in refused(data_dir)
        socket.rmdir()
        socket.symlink_to(folder)
        assert str(socket) in refused(data_dir)
    finally:
        socket.unlink()


def test_a_link_in_place_of_the_log_is_refused(folder: Path) -> None:
    """Nothing outside the folder is written to."""
    (folder / "postgres.log").symlink_to(folder / "elsewhere")
    assert "postgres.log" in refused(folder)
    assert not (folder / "elsewhere").exists()


def test_a_file_in_place_of_the_folder_is_explained(folder: Path) -> None:
    """Also further up."""
    (folder / "file").write_text("mine")
    assert str(folder / "file") in refused(folder / "file")
    assert str(folder / "file") in refused(folder / "file" / "data")
    assert (folder / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_explained() -> None:
    """As where nobody can write, not even root."""
    assert "HANGO_DATA_DIR" in refused(Path("/proc/hango"))


def test_a_name_with_a_control_character_is_refused(folder: Path) -> None:
    """Postgres keeps the path in a file of lines."""
    assert "control character" in refused(folder / "two\nlines")
    assert "control character" in refused(folder / "nul\0")


def test_a_name_too_long_for_the_file_system_is_explained(folder: Path) -> None:
    """The error is ours, and has the system's reason."""
    assert "too long" in refused(folder / ("x" * 300))


@as_user
def test_a_read_only_folder_is_explained(folder: Path) -> None:
    """The message says what to set."""
    folder.chmod(0o500)
    assert "HANGO_DATA_DIR" in refused(folder / "data")
    assert "ermission" in refused(folder)


def test_the_cluster_of_another_postgres_is_left_alone(folder: Path) -> None:
    """A data folder of Postgres itself is not one of hango's."""
    (folder / "PG_VERSION").write_text("14\n")
    message = refused(folder)
    assert "Postgres 14" in message
    assert "HANGO_DATA_DIR" in message
    assert [entry.name for entry in folder.iterdir()] == ["PG_VERSION"]


def test_something_else_in_place_of_the_cluster_is_left_alone(folder: Path) -> None:
    """What is no cluster is not overwritten."""
    (folder / "postgres").mkdir()
    (folder / "postgres" / "letter").write_text("dear")
    account = choose_os_user(folder / "none", folder)
    account.own(folder / "postgres")
    assert "PG_VERSION" in refused(folder)
    assert (folder / "postgres" / "letter").read_text() == "dear"


@pytest.mark.parametrize("version", ["12", "99"])
def test_a_folder_of_another_version_is_explained(folder: Path, version: str) -> None:
    """The message names both versions and the ways out; nothing is touched."""
    with embedded_postgres(folder, settings=FAST):
        pass
    (folder / "postgres" / "PG_VERSION").write_text(f"{version}\n")
    message = refused(folder)
    assert f"made by Postgres {version}" in message
    for way_out in ("HANGO_PG_BINDIR", "pg_upgrade", "HANGO_DATA_DIR"):
        assert way_out in message


def test_a_folder_without_programs_is_refused(folder: Path) -> None:
    """An explicit folder of programs is the only one looked at."""
    message = refused(folder / "data", folder)
    assert f"{folder} has no postgres" in message
    assert "hango[embedded]" in message
    assert "HANGO_DATABASE_URL" in message


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("echo 'postgres (PostgreSQL) 14.9'", "14.9"),
        ("echo broken library >&2; exit 127", "broken library"),
        ("echo hello", "does not run"),
    ],
)
def test_programs_that_cannot_serve_are_refused(folder: Path, answer: str, reason: str) -> None:
    """Too old, broken, or something else: the message has what was seen."""
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f"#!/bin/sh\n{answer}\n")
        (folder / name).chmod(0o755)
    assert reason in refused(folder / "data", folder)


def test_a_prerelease_is_its_version(folder: Path) -> None:
    """Versions are not always two numbers."""
    for name in ("postgres", "initdb"):
        (folder / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 19beta1'\n")
        (folder / name).chmod(0o755)
    account = choose_os_user(folder / "none", folder)
    assert find_installation(folder, account, folder / "none").major == 19


def test_the_installation_that_made_a_cluster_goes_on_serving_it(folder: Path) -> None:
    """A newer Postgres that is preferred for new folders does not lock old data out."""
    account = choose_os_user(folder / "none", folder)
    preferred = find_installation(None, account, folder / "none")
    older = next(
        (
            path
            for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))
            if path.parent.name != str(preferred.major) and int(path.parent.name) >= 15
        ),
        None,
    )
    if older is None:
        pytest.skip("needs two versions of Postgres")
    with embedded_postgres(folder, older, FAST) as dsn:
        ask(dsn, "create table kept (x int)")
    with embedded_postgres(folder, settings=FAST) as dsn:
        assert ask(dsn, "select count(*) from kept") == 0


@as_user
def test_a_user_runs_the_server_as_themselves(folder: Path) -> None:
    """Nobody else is involved."""
    with embedded_postgres(folder, settings=FAST):
        assert (folder / "postgres").stat().st_uid == os.geteuid()
