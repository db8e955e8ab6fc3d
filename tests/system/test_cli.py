"""The command line, as a user meets it: real processes, their output and their exit codes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import trio

from hango.db import migrations
from hango.db.pool import open_pool
from hango.store.accounts import Accounts
from hango.testing.plugin import sql

from support.embedded import temporary_folder
from support.locks import until_waiting
from support.processes import COMMAND, environment, hango, started

HIDDEN_URL = "postgresql://user:hunter2@localhost:1/hango"


async def test_migrate_brings_an_empty_database_up_to_date_once(empty_database: str) -> None:
    """What was pending is applied, marked as done now, and not again the next time."""
    pending = await hango("migrate", "--status", HANGO_DATABASE_URL=empty_database)
    assert pending.code == 0
    assert "0001_initial  pending" in pending.out
    first = await hango("migrate", HANGO_DATABASE_URL=empty_database)
    assert first.code == 0
    assert "(now)" in first.out
    second = await hango("migrate", "--json", HANGO_DATABASE_URL=empty_database)
    assert second.code == 0
    assert all(row["applied_at"] for row in json.loads(second.out)["data"])


async def test_every_command_that_opens_the_database_migrates_it_first(empty_database: str) -> None:
    """Nobody has to know about migrations to begin."""
    made = await hango("tenant", "create", "acme", "--json", HANGO_DATABASE_URL=empty_database)
    assert made.code == 0, made.err
    assert json.loads(made.out)["slug"] == "acme"


async def test_what_an_operator_creates_is_one_object_each(database: str) -> None:
    """Tenant, user, key and agent, each in a shape of its own and on one line."""

    async def create(*words: str) -> dict[str, object]:
        done = await hango(*words, "--json", HANGO_DATABASE_URL=database)
        assert done.code == 0, done.err
        assert len(done.out.splitlines()) == 1
        found = json.loads(done.out)
        assert isinstance(found, dict)
        return found

    tenant = await create("tenant", "create", "acme", "--name", "Acme Inc.")
    assert set(tenant) == {"id", "slug", "name", "created_at"}
    who = ("--tenant", "acme", "--email", "ada@example.com")
    user = await create("user", "create", *who, "--role", "admin")
    assert user["tenant_id"] == tenant["id"]
    assert user["role"] == "admin"
    key = await create("key", "create", *who)
    assert set(key) == {"id", "user_id", "key"}
    assert key["user_id"] == user["id"]
    assert str(key["key"]).startswith("hgo_")
    words = ("--slug", "clock", "--provider", "demo", "--model", "m", "--tool", "get_time")
    agent = await create("agent", "create", "--tenant", "acme", *words)
    assert agent["tools"] == ["get_time"]
    assert agent["provider"] == "demo"


AGENT = ["agent", "create", "--tenant=nobody", "--slug=s", "--provider=demo", "--model=m"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tenant", "create", "nobody"], 1, "there is a tenant 'nobody' already"),
        (["user", "create", "--tenant", "none", "--email", "a@b.c"], 1, "there is no tenant 'none'"),
        (["key", "create", "--tenant", "nobody", "--email", "a@b.c"], 1, "there is no user 'a@b.c'"),
        (["tenant", "create", "No Slug"], 2, "must be 1 to 63"),
        (["user", "create", "--tenant", "nobody", "--email", "a"], 2, "must be an address"),
        (["user", "create", "--tenant", "nobody", "--email", "a@b", "--role", "god"], 2, "not one of"),
        (["user", "create", "--tenant", "nobody", "--email", "a@" + "b" * 400], 2, "at most 254"),
        (["tenant", "create", "t", "--name", "n" * 201], 2, "at most 200"),
        ([*AGENT, "--name", "n" * 201], 2, "at most 200"),
        ([*AGENT, "--model", "m" * 201], 2, "at most 200"),
        (
            ["agent", "create", "--tenant", "nobody", "--slug", "s", "--provider", "x", "--model", "m"],
            2,
            "'x' is not registered: must be one of demo, openai",
        ),
        (["migrate", "now"], 2, "unexpected extra argument"),
        (["fly"], 2, "No such command"),
        (["run"], 2, "Missing argument"),
        (["run", " \n "], 2, "must not be blank"),
        (["run", "hi", "--session", "not-a-uuid"], 2, "not a valid UUID"),
        (["run", "hi", "--session", "00000000-0000-0000-0000-000000000000"], 1, "no such session"),
        (["run", "hi", "--agent", "nobody"], 1, "there is no agent 'nobody'"),
    ],
)
async def test_a_mistake_is_a_line_that_says_what_is_wrong(
    database: str, words: list[str], code: int, said: str
) -> None:
    """1 for what failed, 2 for wrong usage; nothing on standard output, and never a traceback."""
    async with open_pool(database) as pool:
        await Accounts(pool).create_tenant("nobody", "Nobody")
    done = await hango(*words, HANGO_DATABASE_URL=database)
    assert done.code == code, done.err
    assert said in done.err
    assert not done.out
    assert "Traceback" not in done.err


async def test_a_database_that_is_not_there_is_told_without_its_password() -> None:
    """The message says what to look at."""
    done = await hango("migrate", HANGO_DATABASE_URL=HIDDEN_URL)
    assert done.code == 1
    assert "localhost:1" in done.err
    assert "HANGO_DATABASE_URL" in done.err
    assert "hunter2" not in done.err
    assert "Traceback" not in done.err


async def test_config_check_shows_what_holds_and_hides_what_is_secret() -> None:
    """Everything with its default; warnings go elsewhere."""
    done = await hango(
        "config",
        "check",
        HANGO_DATABASE_URL=HIDDEN_URL,
        OPENAI_API_KEY="sk-hunter2",
        HANGO_DRAIN_TIMEOUT="10s",
    )
    assert done.code == 0
    shown = dict(line.split("=", 1) for line in done.out.splitlines())
    assert shown["HANGO_DATABASE_URL"] == "postgresql://user:***@localhost:1/hango"
    assert shown["OPENAI_API_KEY"] == "***"
    assert shown["HANGO_RUN_LEASE_TTL"] == "90s"
    assert "HANGO_DRAIN_TIMEOUT is shorter" in done.err
    assert "hunter2" not in done.out + done.err


async def test_config_check_lists_all_mistakes_and_exits_with_2() -> None:
    """One line each; so does every other command, before it does anything."""
    wrong = {"HANGO_BIND": "x", "HANGO_ROLES": "web", "HANGO_RUN_DEADLINE": "soon"}
    for words in (["config", "check"], ["serve"], ["run", "hi"], ["migrate"]):
        done = await hango(*words, **wrong)
        assert done.code == 2
        assert len(done.err.splitlines()) == 3
        assert "HANGO_ROLES: there is no such setting; did you mean HANGO_ROLE?" in done.err


async def test_a_plug_in_is_imported_from_the_folder_one_is_in_or_named_in_the_error(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beside one's prompt is enough; one that fails stops the start, in a line."""
    (tmp_path / "my_tools.py").write_text(
        "import hango\n\n"
        "@hango.tool(effects=hango.Effects.READ_ONLY)\n"
        "def shout(text: str) -> str:\n    '''Shout.'''\n    return text.upper()\n\n"
        "def register(plugins):\n    plugins.tool(shout)\n"
        "    plugins.guardrail('quiet', lambda event: 'hush')\n"
    )
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    monkeypatch.chdir(tmp_path)
    words = ("--tenant", "none", "--slug", "s", "--provider", "demo", "--model", "m")
    settings = {"HANGO_DATABASE_URL": database, "HANGO_PLUGINS": "my_tools"}
    known = await hango("agent", "create", *words, "--tool", "shout", **settings)
    assert "there is no tenant 'none'" in known.err
    unknown = await hango("agent", "create", *words, "--tool", "whisper", **settings)
    assert (
        "'whisper' is not registered: must be one of get_time, http_fetch, shout, todowrite"
        in unknown.err
    )
    bad = await hango("config", "check", HANGO_PLUGINS="my_tools,broken")
    assert bad.code == 2
    assert "plug-in broken" in bad.err
    assert "Traceback" not in bad.err


async def test_an_agent_may_have_guardrails_and_a_gate(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names must be registered, and a gate needs its number of attempts."""
    (tmp_path / "rails.py").write_text(
        "def register(plugins):\n    plugins.guardrail('quiet', lambda event: 'hush')\n"
    )
    monkeypatch.chdir(tmp_path)
    settings = {"HANGO_DATABASE_URL": database, "HANGO_PLUGINS": "rails"}
    await hango("tenant", "create", "acme", **settings)
    words = ("--tenant", "acme", "--slug", "s", "--provider", "demo", "--model", "m")
    gate = ("--verify", "all_todos_done", "--max-attempts", "3")
    made = await hango("agent", "create", *words, "--guardrail", "quiet", *gate, "--json", **settings)
    stored = json.loads(made.out)
    assert stored["guardrails"] == ["quiet"]
    assert stored["completion"] == {"verify": "all_todos_done", "max_attempts": 3}
    for wrong, said in [
        (("--guardrail", "loud"), "'loud' is not registered: must be one of quiet"),
        (("--guardrail", "quiet", "--guardrail", "quiet"), "quiet is given twice"),
        (
            ("--verify", "luck", "--max-attempts", "3"),
            "'luck' is not registered: must be one of all_todos_done",
        ),
        (gate[:2], "needs both --verify and --max-attempts"),
        ((*gate[:3], "0"), "--max-attempts"),
    ]:
        refused = await hango("agent", "create", *words, *wrong, **settings)
        assert (refused.code, said in refused.err) == (2, True), refused.err


async def test_a_default_provider_nobody_registered_is_a_mistake() -> None:
    """It is found at start, not by the first run."""
    done = await hango("config", "check", HANGO_DEFAULT_PROVIDER="openia")
    assert done.code == 2
    assert "HANGO_DEFAULT_PROVIDER: 'openia' must be one of demo, openai" in done.err


async def test_without_a_database_named_hango_has_its_own() -> None:
    """Nothing needs to be installed or set; what it keeps is in the data folder."""
    with temporary_folder() as folder:
        first = await hango("tenant", "create", "acme", HANGO_DATA_DIR=str(folder))
        assert first.code == 0, first.err
        again = await hango("tenant", "create", "acme", HANGO_DATA_DIR=str(folder))
        assert again.code == 1
        assert "already" in again.err


async def test_a_shell_can_ask_for_completions() -> None:
    """W-L8: the script that a shell loads, and what that asks for."""
    script = await hango(_HANGO_COMPLETE="bash_source")
    assert (script.code, script.err) == (0, "")
    assert "complete" in script.out
    words = {"COMP_WORDS": "hango d", "COMP_CWORD": "1"}
    offered = await hango(_HANGO_COMPLETE="bash_complete", **words)
    assert offered.out.split() == ["plain,dev", "plain,doctor"]


async def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """As in ``hango config check | head -1``: the command ends, and says nothing of it."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = await trio.run_process(
            [*COMMAND, "config", "check"],
            env=environment(),
            stdout=writer,
            capture_stderr=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_a_command_that_waits(database: str, number: signal.Signals) -> None:
    """At once and in order, also as a background job, with the exit code shells expect."""
    async with open_pool(database) as pool:
        await sql(pool, f"select pg_advisory_lock({migrations._LOCK})")
        async with started("migrate", ignoring="INT", HANGO_DATABASE_URL=database) as process:
            await until_waiting(pool)
            process.signal(number)
            assert await process.ended() == 128 + number
    assert not any("Traceback" in line for line in process.lines)


@pytest.mark.rule(27)
@pytest.mark.parametrize(
    "words", [("run", "hello"), ("config", "check"), ("serve", "--bind=127.0.0.1:0")]
)
async def test_a_provider_that_cannot_be_made_is_an_error_before_there_is_a_run(
    database: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    """W-H4: the plug-in and its reason are named, and nothing is left behind that executes later."""
    code = "def register(plugins):\n    plugins.provider('mine', lambda: {}['MINE_KEY'])\n"
    (tmp_path / "mine_plugin.py").write_text(code)
    settings = {"HANGO_DATABASE_URL": database, "HANGO_PLUGINS": "mine_plugin"}
    done = await hango(*words, PYTHONPATH=str(tmp_path), **settings)
    assert done.code == 2, done.err
    assert "hango: plug-in mine_plugin: provider mine: KeyError: 'MINE_KEY'" in done.err
    async with open_pool(database) as pool:
        assert await sql(pool, "select from runs") == []
