"""The life of an embedded server: who starts it, who shares it, who stops it, and what it survives."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio_asyncio

from hango.embedded import embedded_postgres
from hango.embedded.postmaster import serves
from hango.errors import EmbeddedPostgresError

from support.embedded import (
    FAST,
    ask,
    folders_of,
    holders,
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


def test_a_cold_start_serves_a_database_of_its_own(data_dir: Path) -> None:
    """Nothing is there but a path; a database answers, and afterwards the server is gone."""
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        assert ask(dsn, "select current_database()") == "hango"
        assert running(data_dir)
    assert running(data_dir) is None


def test_commits_are_durable_unless_asked_otherwise(data_dir: Path) -> None:
    """Without settings, nothing that survives a power cut is switched off."""
    with embedded_postgres(data_dir) as dsn:
        durable = ("fsync", "synchronous_commit", "full_page_writes")
        assert {name: ask(dsn, f"show {name}") for name in durable} == dict.fromkeys(durable, "on")
        assert int(str(ask(dsn, "show max_connections"))) >= 200


def test_no_address_is_let_in(data_dir: Path) -> None:
    """S-L9: an operator who makes it listen on an address has to say who may enter, too."""
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        methods = "select string_agg(distinct type || ' ' || auth_method, ', ') from pg_hba_file_rules"
        assert ask(dsn, methods) == "host reject, local trust"


def test_only_its_user_reaches_it(data_dir: Path) -> None:
    """It listens on a socket in a private folder, and on no network."""
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        server = running(data_dir)
        assert server
        assert server.socket
        assert ask(dsn, "show listen_addresses") == ""
        for folder in (data_dir, server.socket, folders_of(data_dir).cluster):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_was_stored_is_there_after_a_restart(data_dir: Path) -> None:
    """The data folder keeps the data from one start to the next."""
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        ask(dsn, "create table kept (x int)")
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        assert ask(dsn, "select count(*) from kept") == 0


def test_a_missing_database_is_made_again(data_dir: Path) -> None:
    """Somebody dropped the database; the next start makes it."""
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        ask(dsn.replace("/hango?", "/postgres?"), "drop database hango")
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        assert ask(dsn, "select 1") == 1


def test_a_second_process_shares_it_and_the_last_one_stops_it(data_dir: Path) -> None:
    """Whoever started it may leave first: it stops when nobody is left."""
    with holders(data_dir) as [first]:
        first.wait()
        server = running(data_dir)
        with embedded_postgres(data_dir, settings=FAST) as dsn:
            assert dsn == first.dsn
            first.leave()
            assert running(data_dir) == server
            assert ask(dsn, "select 1") == 1
    assert running(data_dir) is None


def test_two_uses_in_one_process_share_it_as_well(data_dir: Path) -> None:
    """A process may enter twice; leaving once does not stop it."""
    with embedded_postgres(data_dir, settings=FAST) as outer:
        with embedded_postgres(data_dir, settings=FAST) as inner:
            assert inner == outer
        assert ask(outer, "select 1") == 1


def test_a_link_to_the_folder_is_the_same_server(data_dir: Path) -> None:
    """However the folder is spelled, there is one server for it."""
    alias = data_dir.with_name("alias")
    alias.symlink_to(data_dir)
    with embedded_postgres(data_dir, settings=FAST) as dsn, embedded_postgres(alias) as same:
        assert same == dsn


def test_six_processes_starting_at_once_share_one(data_dir: Path) -> None:
    """On an empty folder one makes the cluster and starts the server; all six get it."""
    with holders(data_dir, 6) as peers:
        assert len({peer.wait().dsn for peer in peers}) == 1
        for peer in peers:
            assert running(data_dir)
            peer.leave()
    assert running(data_dir) is None
    assert folders_of(data_dir).log.read_text().count("starting PostgreSQL") == 1


def test_processes_that_come_and_go_at_once_always_have_one(data_dir: Path) -> None:
    """Leaving as the last and coming as the next never leaves anybody without a server."""
    with holders(data_dir, 2) as leaving:
        for peer in leaving:
            peer.wait()
        with holders(data_dir, 3) as coming:
            for peer in leaving:
                peer.leave()
            for peer in coming:
                assert ask(peer.wait().dsn, "select 1") == 1
                peer.leave()
    assert running(data_dir) is None


def test_it_is_in_a_session_of_its_own(data_dir: Path) -> None:
    """No signal of a terminal reaches it, and it is nobody's child to be waited for."""
    with embedded_postgres(data_dir, settings=FAST):
        server = running(data_dir)
        assert server
        assert os.getsid(server.pid) != os.getsid(0)
        with pytest.raises(ChildProcessError):
            os.waitpid(server.pid, os.WNOHANG)


@linux_only
def test_it_does_not_inherit_our_secrets(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the environment are none of the server's business; nor is somebody's PGPORT ours."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with embedded_postgres(data_dir, settings=FAST):
        server = running(data_dir)
        assert server
        environment = Path(f"/proc/{server.pid}/environ").read_bytes()
        assert b"secret" not in environment
        assert b"PG" not in environment.replace(b"PGBIN", b"")


def test_a_start_that_fails_says_why_and_leaves_nothing(data_dir: Path) -> None:
    """The error has what the server said; the next start is not in its way."""
    with (
        pytest.raises(EmbeddedPostgresError, match=r"max_connections.*nonsense"),
        embedded_postgres(data_dir, settings={**FAST, "max_connections": "nonsense"}),
    ):
        raise AssertionError
    with embedded_postgres(data_dir, settings=FAST) as dsn:
        assert ask(dsn, "select 1") == 1


def test_a_setting_is_a_name_and_nothing_else(data_dir: Path) -> None:
    """A name that would become another option is refused."""
    with (
        pytest.raises(EmbeddedPostgresError, match="not the name of a Postgres setting"),
        embedded_postgres(data_dir, settings={"fsync=off -c x": "1"}),
    ):
        raise AssertionError


def test_it_stops_when_its_user_fails(data_dir: Path) -> None:
    """An error in the body passes through as it is, and the server still stops."""
    with pytest.raises(ZeroDivisionError), embedded_postgres(data_dir, settings=FAST):
        raise ZeroDivisionError
    assert running(data_dir) is None


def test_leaving_succeeds_when_the_folder_is_gone(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody removed the data; whoever leaves has done their work, and no error hides it."""
    with embedded_postgres(data_dir, settings=FAST):
        server = running(data_dir)
        assert server
        moved = data_dir.with_name("moved")
        data_dir.rename(moved)
    assert not caplog.records
    os.kill(server.pid, signal.SIGINT)
    until(lambda: not serves(server.pid, moved / "postgres"))


async def test_it_can_be_entered_from_a_thread_of_a_trio_program(data_dir: Path) -> None:
    """Also where an asyncio loop runs on trio: the thread has nothing to do with it."""

    def use() -> object:
        with embedded_postgres(data_dir, settings=FAST) as dsn:
            return ask(dsn, "select 1")

    async with trio_asyncio.open_loop():
        assert await trio.to_thread.run_sync(use) == 1
