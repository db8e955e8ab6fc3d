"""What hango was asked to do from the first day on, each as it was asked: over whole runs and the API.

``docs/reference/seed-criteria.md`` lists all of it, and the tests that prove the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio

from hango.domain import (
    Effects,
    ErrorCode,
    Message,
    Result,
    Role,
    RunState,
    StopReason,
    TextBlock,
    ToolResultBlock,
)
from hango.store.claims import Claim
from hango.telemetry import names
from hango.testing import Answer, FakeProvider, answer, call, text
from hango.testing.plugin import SeededTenant
from hango.tools import builtin_tools, tool

from support.api import Api
from support.counters import counted
from support.locks import row_held, until_waiting
from support.web_server import ok, serve
from support.workers import SETTINGS, BlockingTool, started_worker, until


@tool(effects=Effects.READ_ONLY)
async def noon() -> str:
    """Tell the time."""
    return "12:00"


@tool(effects=Effects.READ_ONLY)
async def broken() -> Result:
    """Return an error."""
    return Result("no such city", is_error=True)


@tool(effects=Effects.READ_ONLY)
async def panicking() -> object:
    """Do what ends a program."""
    raise SystemExit(1)


def told(message: Message) -> str:
    """Return a message as a line: turn, role, blocks (``!``: an error), and whether hango wrote it."""
    kinds = [
        f"{block.TYPE}!" if isinstance(block, ToolResultBlock) and block.is_error else block.TYPE
        for block in message.content
    ]
    return " ".join([str(message.turn), message.role, *kinds, *["synthetic"] * message.synthetic])


ASKED = "0 user text"
CASES: dict[str, tuple[Sequence[Answer], RunState, ErrorCode | None, Sequence[str]]] = {
    # what the model answers, and how the run ends: state, error, all that is stored
    "text only": (
        [answer(text("hello"))],
        RunState.SUCCEEDED,
        None,
        [ASKED, "1 assistant text"],
    ),
    "one tool call": (
        [answer(call("noon")), answer(text("it is noon"))],
        RunState.SUCCEEDED,
        None,
        [ASKED, "1 assistant tool_use", "1 user tool_result", "2 assistant text"],
    ),
    "tool error, then recovery": (
        [answer(call("broken")), answer(call("noon")), answer(text("it is noon"))],
        RunState.SUCCEEDED,
        None,
        [
            ASKED,
            "1 assistant tool_use",
            "1 user tool_result!",
            "2 assistant tool_use",
            "2 user tool_result",
            "3 assistant text",
        ],
    ),
    "panicking tool": (
        [answer(call("panicking")), answer(text("sorry"))],
        RunState.SUCCEEDED,
        None,
        [ASKED, "1 assistant tool_use", "1 user tool_result!", "2 assistant text"],
    ),
    "cap": (
        [answer(call("noon"))] * 3,
        RunState.FAILED,
        ErrorCode.ITERATION_CAP,
        [
            ASKED,
            *[line for n in (1, 2, 3) for line in (f"{n} assistant tool_use", f"{n} user tool_result")],
            "4 assistant text synthetic",
        ],
    ),
    "pause_turn": (
        [answer(text("wait"), stop=StopReason.PAUSE_TURN)],
        RunState.FAILED,
        ErrorCode.UNSUPPORTED_STOP,
        [ASKED, "1 assistant text"],
    ),
}


@pytest.mark.rule(15)
@pytest.mark.rule(17)
@pytest.mark.rule(18)
@pytest.mark.parametrize("name", CASES)
async def test_the_loop_comes_to_its_end_and_every_message_is_stored(
    world: SeededTenant, name: str
) -> None:
    """Text, a call, an error, a panic, the cap, a pause: state, error and the sequence stored."""
    script, state, code, stored = CASES[name]
    settings = attrs.evolve(SETTINGS, max_iterations=3)
    async with started_worker(world, FakeProvider(script), noon, broken, panicking, settings=settings):
        (run,) = await until(world, [await world.run(await world.session())])
    messages = await world.sessions.messages(world.scope(), run.session_id, limit=200)
    assert [told(message) for message in messages] == list(stored)
    assert [message.seq for message in messages] == list(range(1, len(stored) + 1))
    assert (run.state, run.error.code if run.error else None) == (state, code)
    assert run.final_message_id == messages[-1].id
    if run.error:
        assert {"cap": "3 iterations", "pause_turn": "pause_turn"}[name] in run.error.message


@pytest.mark.rule(1)
async def test_of_two_workers_that_saw_a_run_one_gets_it_and_one_has_lost(world: SeededTenant) -> None:
    """One row comes back, to one of them; the other's try counts as lost, once."""
    session = await world.session()
    run = await world.run(session)
    claims: list[Claim | None] = []
    before = counted(names.RUN_CLAIMS, outcome="won"), counted(names.RUN_CLAIMS, outcome="lost")

    async def race() -> None:
        claims.append(await world.queue().claim_next(session.id))

    async with trio.open_nursery() as nursery, row_held(world.pool, "runs", run.id):
        nursery.start_soon(race)
        nursery.start_soon(race)
        await until_waiting(world.pool, 2)
    after = counted(names.RUN_CLAIMS, outcome="won"), counted(names.RUN_CLAIMS, outcome="lost")
    assert [claim.run.id for claim in claims if claim] == [run.id]
    assert after == (before[0] + 1, before[1] + 1)


@pytest.mark.rule(1)
async def test_of_two_processes_one_calls_the_provider(world: SeededTenant) -> None:
    """However many wait for a run, it is bought once."""
    provider = FakeProvider([answer(text("hello"))])
    async with started_worker(world, provider), started_worker(world, provider):
        (run,) = await until(world, [await world.run(await world.session())])
    assert run.state is RunState.SUCCEEDED
    assert (len(provider.requests), run.claim_epoch) == (1, 1)


async def test_a_run_is_posted_and_polled_from_queued_to_succeeded(api: Api) -> None:
    """202 with where it is; asking there shows queued, running and succeeded, and the final message."""
    session, gate = await api.session(), BlockingTool()
    provider = FakeProvider([answer(call("hold")), answer(text("done"))])
    async with api.as_role(Role.MEMBER) as client:
        made = await client.post(f"/v1/sessions/{session.id}/runs", json={"input": "go"})
        where = made.headers["location"]
        assert (made.status_code, where) == (202, f"/v1/runs/{made.json()['id']}")
        states = [(await client.get(where)).json()["state"]]
        async with started_worker(api.acme, provider, gate.tool):
            with trio.fail_after(30):
                await gate.entered.wait()
            states.append((await client.get(where)).json()["state"])
            gate.open.set()
            await until(api.acme, [await api.acme.runs.get(api.acme.scope(), made.json()["id"])])
        run = (await client.get(where)).json()
        messages = (await client.get(f"/v1/sessions/{session.id}/messages")).json()["data"]
    assert [*states, run["state"]] == ["queued", "running", "succeeded"]
    assert run["final_message_id"] == messages[-1]["id"]
    assert run["error"] is None
    assert run["usage"]["output_tokens"] > 0


@pytest.mark.rule(12)
@pytest.mark.rule(13)
async def test_an_owners_run_in_a_members_session_reads_that_session(api: Api) -> None:
    """The run executes on the owner's behalf, and the model sees what the member had said."""
    session, provider = (
        await api.session(Role.MEMBER),
        FakeProvider([answer(text("a")), answer(text("b"))]),
    )
    async with started_worker(api.acme, provider):
        for role in (Role.MEMBER, Role.OWNER):
            async with api.as_role(role) as client:
                path = f"/v1/sessions/{session.id}/runs"
                made = (await client.post(path, json={"input": f"says {role}"})).json()
            run = await api.acme.runs.get(api.acme.scope(), made["id"])
            assert (await until(api.acme, [run]))[0].state is RunState.SUCCEEDED
    said = [block for message in provider.requests[1].messages for block in message.content]
    assert said == [TextBlock("says member"), TextBlock("a"), TextBlock("says owner")]
    assert run.created_by == api.acme.users[Role.OWNER].id


@pytest.mark.rule(22)
async def test_http_fetch_goes_neither_elsewhere_nor_inside(
    world: SeededTenant, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E01, E07, E14, E15: in a whole run, whatever is listed or set around it; nothing is sent."""
    server = await serve(nursery, {"/": ok(b"inside")})
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.port}")
    listed = [f"127.0.0.1:{server.port}", f"localhost:{server.port}", f"[::1]:{server.port}"]
    inside = [f"http://{host}/" for host in listed] + [f"http://[::ffff:7f00:1]:{server.port}/"]
    elsewhere = [
        "http://example.com/",
        "https://127.0.0.2/",
        "file:///etc/passwd",
        "http://2130706433/",
    ]
    calls = [call("http_fetch", {"url": url}) for url in [*inside, *elsewhere]]
    provider = FakeProvider([answer(*calls), answer(text("I could not"))])
    async with started_worker(world, provider, *builtin_tools(http_fetch_allowed_hosts=listed)):
        (run,) = await until(world, [await world.run(await world.session())])
    results = provider.requests[1].messages[-1].content
    assert run.state is RunState.SUCCEEDED
    assert len(results) == len(calls)
    for result, refusal in zip(results, [*["public internet"] * 3, *["not fetched"] * 5], strict=True):
        assert isinstance(result, ToolResultBlock)
        assert result.is_error
        assert refusal in result.content
    assert not server.requests
