"""`hango run`: the main job in one command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from uuid import UUID

import pytest
import trio

from hango.db.pool import open_pool
from hango.domain import RunState
from hango.testing.plugin import make_seeded_tenant, sql

from support.embedded import temporary_folder
from support.llm_server import delta, error_reply, finish, serve_llm, sse, stream_reply
from support.messages_wire import message, text, use
from support.processes import COMMAND, environment, hango, started, until

PROMPT = "What time is it in Tokyo and in Berlin?"


async def test_the_answer_is_on_standard_output_and_all_else_on_standard_error(database: str) -> None:
    """It needs nothing but a database: tenant, user, agent and session are made where missing."""
    done = await hango("run", PROMPT, HANGO_DATABASE_URL=database)
    assert done.code == 0, done.err
    assert "Asia/Tokyo" in done.out
    assert "Europe/Berlin" in done.out
    said = done.err.splitlines()
    ids = dict(line.split(" ", 1) for line in said[:3])
    assert set(ids) == {"run", "session", "trace"}
    assert len(ids["trace"]) == 32
    assert "turn 1" in said
    assert any(line.startswith('  get_time {"') for line in said)
    assert "\x1b" not in done.err


async def test_without_a_database_named_it_has_its_own() -> None:
    """The first command of a newcomer works as it is."""
    with temporary_folder() as folder:
        done = await hango("run", PROMPT, HANGO_DATA_DIR=str(folder))
    assert done.code == 0, done.err
    assert "Asia/Tokyo" in done.out


async def test_json_is_the_run_as_the_api_answers_it_and_its_text(database: str) -> None:
    """One object, with the state, the id of the last message, and what that says."""
    done = await hango("run", PROMPT, "--json", HANGO_DATABASE_URL=database)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["state"] == "succeeded"
    assert found["error"] is None
    assert found["iterations"] == 2
    assert "Asia/Tokyo" in found["text"]
    async with open_pool(database) as pool:
        (row,) = await sql(pool, "select final_message_id from runs where id = $1", UUID(found["id"]))
    assert str(row["final_message_id"]) == found["final_message_id"]


async def test_a_session_can_be_gone_on_with(database: str) -> None:
    """The second run stands in the same conversation, behind the first."""
    first = await hango("run", "hello", "--json", HANGO_DATABASE_URL=database)
    session = json.loads(first.out)["session_id"]
    again = await hango("run", PROMPT, "--json", "--session", session, HANGO_DATABASE_URL=database)
    found = json.loads(again.out)
    assert found["session_id"] == session
    assert found["session_seq"] == 2
    assert "Asia/Tokyo" in found["text"]


async def test_an_agent_of_the_default_tenant_can_be_named(database: str) -> None:
    """What it may not call, it does not call."""
    settings = {"HANGO_DATABASE_URL": database}
    await hango("run", "hello", **settings)
    words = ("--tenant", "default", "--slug", "plain", "--provider", "demo", "--model", "m")
    await hango("agent", "create", *words, "--tool", "http_fetch", **settings)
    done = await hango("run", PROMPT, "--agent", "plain", **settings)
    assert done.code == 0, done.err
    assert "get_time {" not in done.err


async def test_two_at_once_on_an_empty_database_both_answer(empty_database: str) -> None:
    """Migrations, tenant, user and agent are made once, by whoever is first."""
    codes: list[int] = []

    async def one() -> None:
        codes.append((await hango("run", PROMPT, HANGO_DATABASE_URL=empty_database)).code)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
    assert codes == [0, 0, 0]


async def test_the_provider_whose_key_is_set_answers(database: str) -> None:
    """OPENAI_API_KEY and OPENAI_BASE_URL are all it takes; OPENAI_MODEL names the model."""
    says = stream_reply(sse(delta(content="from the server"), finish("stop")))
    async with serve_llm(says, says) as llm:
        settings = {
            "OPENAI_BASE_URL": llm.url,
            "OPENAI_API_KEY": "sk-test",
            "HANGO_DATABASE_URL": database,
        }
        first = await hango("run", "hello", **settings)
        second = await hango("run", "hello", **settings, OPENAI_MODEL="another")
    assert first.out == second.out == "from the server\n"
    assert llm.received[0].headers["authorization"] == "Bearer sk-test"
    assert llm.received[1].body["model"] == "another"


async def test_a_model_is_named_with_its_provider(database: str) -> None:
    """`--model anthropic/…` asks Anthropic's API, whatever else is set; the run is done with a tool."""
    asks = message(use(0, "toolu_1", "get_time", '{"timezone": "Asia/Tokyo"}'), reason="tool_use")
    says = message(text(0, "from the ", "other server"))
    settings = {"ANTHROPIC_API_KEY": "sk-ant", "OPENAI_API_KEY": "sk-x", "HANGO_DATABASE_URL": database}
    async with serve_llm(stream_reply(asks), stream_reply(says)) as llm:
        done = await hango(
            "run", "hello", "--model", "anthropic/claude-x", **settings, ANTHROPIC_BASE_URL=llm.url
        )
    assert (done.code, done.out) == (0, "from the other server\n")
    first, second = llm.received
    assert (first.target, first.headers["x-api-key"]) == ("/v1/messages", "sk-ant")
    assert first.body["model"] == "claude-x"
    assert "Asia/Tokyo" in second.raw.decode()


async def test_a_failed_run_exits_with_1_and_says_why(database: str) -> None:
    """Nothing on standard output that could be taken for an answer."""
    async with serve_llm(error_reply(401, '{"error": {"message": "bad key"}}')) as llm:
        done = await hango("run", "hello", OPENAI_BASE_URL=llm.url, HANGO_DATABASE_URL=database)
    assert done.code == 1
    assert not done.out
    assert "hango: failed: " in done.err
    assert "Traceback" not in done.err


async def test_a_failed_run_is_an_object_all_the_same(database: str) -> None:
    """Programs read state and error from it."""
    async with serve_llm(error_reply(401, '{"error": {"message": "bad key"}}')) as llm:
        done = await hango(
            "run", "hello", "--json", OPENAI_BASE_URL=llm.url, HANGO_DATABASE_URL=database
        )
    assert done.code == 1
    found = json.loads(done.out)
    assert found["state"] == "failed"
    assert found["error"]["code"] == "provider_error"


@pytest.mark.rule(11)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_cancels_the_run_and_exits_with_3(database: str, number: signal.Signals) -> None:
    """The run has ended when the command has; what had arrived of the answer is kept."""
    held = stream_reply(sse(delta(content="half an ans"), done=False), trio.Event())
    async with open_pool(database) as pool, serve_llm(held) as llm:
        async with started("run", "hi", OPENAI_BASE_URL=llm.url, HANGO_DATABASE_URL=database) as run:
            await until(llm.asked())
            run.signal(number)
            assert await run.ended() == 3
        (row,) = await sql(pool, "select state, owner_id from runs")
    assert row["state"] == RunState.CANCELLED
    assert row["owner_id"] is None
    assert run.lines[-1] == "hango: cancelled"


async def test_other_sessions_are_none_of_its_business(database: str) -> None:
    """It executes the runs of its own session; what else is queued waits for a server."""
    async with open_pool(database) as pool:
        world = await make_seeded_tenant(pool, provider="demo")
        other = await world.run(await world.session())
        done = await hango("run", "hello", HANGO_DATABASE_URL=database)
        assert done.code == 0
        assert (await world.reload(other)).state is RunState.QUEUED


async def test_progress_is_live_on_a_terminal(database: str) -> None:
    """There, and only there, it uses control sequences; the answer has none."""
    ours, theirs = os.openpty()
    shown, finished = bytearray(), []

    async def read() -> None:
        async with trio.lowlevel.FdStream(ours) as terminal:
            with contextlib.suppress(trio.BrokenResourceError):  # how a terminal's end shows
                async for piece in terminal:
                    shown.extend(piece)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        settings = environment(HANGO_DATABASE_URL=database, TERM="xterm", COLUMNS="120")
        command = [*COMMAND, "run", PROMPT]
        finished.append(
            await trio.run_process(command, env=settings, stderr=theirs, capture_stdout=True)
        )
        os.close(theirs)
    assert b"\x1b" in shown
    assert b"get_time" in shown
    assert b"Asia/Tokyo" in finished[0].stdout
    assert b"\x1b" not in finished[0].stdout
