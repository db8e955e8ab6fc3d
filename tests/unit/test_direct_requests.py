"""What providers are asked by runs in this process: the plain loop's requests, to the last byte."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hango import (
    Agent,
    BeforeToolEvent,
    Completion,
    Effects,
    RunOpts,
    RunResult,
    Toolkit,
    openai_provider,
    tool,
)
from hango.agent import NULL_SINK, AgentLoop, ExecutionOptions, LoopLimits, Provider
from hango.agent.memory import MemoryLedger, MemoryTranscript
from hango.domain import JsonObject, StopReason, TextBlock, Usage, new_id
from hango.testing import Answer, FakeProvider, answer, call, text, thinking

from support.llm_server import Reply, delta, finish, serve_llm, sse, stream_reply


@tool(effects=Effects.READ_ONLY)
async def look(at: str) -> str:
    """Look at something."""
    return f"a {at}, as ever"


def permits(_: BeforeToolEvent) -> str:
    """Permit."""
    return "allow"


async def passes(_: RunResult) -> tuple[bool, str]:
    """Let it pass."""
    return True, ""


PLAIN = Agent("a", soul="be brief", model="m")
PERMITTED = Agent("a", soul="be brief", model="m", guardrails=[permits, permits])
GATED = Agent("a", soul="be brief", model="m", completion=Completion(passes, 3))
DOORS = pytest.mark.parametrize("agent", [PLAIN, PERMITTED, GATED], ids=["plain", "guardrails", "gate"])


async def drive(agent: Agent | None, provider: Provider) -> None:
    """Run *agent* once; None for the loop itself, without a door before it."""
    async with Toolkit([look]) as toolkit:
        if agent is not None:
            await agent.loop(provider, toolkit).run("do it")
            return
        loop = AgentLoop(
            run_id=new_id(),
            provider=provider,
            tools=toolkit.toolbox(timeout=30),
            transcript=MemoryTranscript(),
            ledger=MemoryLedger(),
            model="m",
            system_prompt="be brief",
            limits=LoopLimits(),
            scope=None,
            usage=Usage(),
        )
        await loop.run(new_id(), (TextBlock("do it"),), NULL_SINK, ExecutionOptions())


# --- no completion, no guardrails: nothing of them is seen ----------------------------------

SCRIPT: Sequence[Answer] = [
    answer(thinking("hm", "c2ln"), text("let me"), call("look", {"at": "tree"}), call("look", {})),
    answer(call("no_such_tool", {"a": [1, 2.5, None]}), call("look", '{"at": ')),
    answer(text("done"), stop=StopReason.MAX_TOKENS),
]


@pytest.mark.rule(24)
@DOORS
async def test_the_direct_door_asks_what_the_plain_loop_asks(agent: Agent) -> None:
    """Request by request; also when guardrails permit all, and a gate is content at once."""
    plain, provider = FakeProvider(SCRIPT), FakeProvider(SCRIPT)
    await drive(None, plain)
    await drive(agent, provider)
    assert provider.requests == plain.requests
    assert len(plain.requests) == 3


def replies() -> tuple[Reply, ...]:
    """Script a server: two calls, then an answer."""
    function = {"name": "look", "arguments": '{"at": "tree"}'}
    calls: list[JsonObject] = [
        {"index": place, "id": f"call_{place}", "type": "function", "function": function}
        for place in range(2)
    ]
    return (
        stream_reply(sse(delta(content="let me", tool_calls=calls), finish("tool_calls"))),
        stream_reply(sse(delta(content="done"), finish("stop"))),
    )


@pytest.mark.rule(24)
@DOORS
async def test_a_server_gets_the_very_same_bytes(agent: Agent) -> None:
    """Over a real socket: body and headers, whether or not somebody watches the run."""
    async with serve_llm(*replies(), *replies()) as server:
        provider = openai_provider(base_url=server.url, model="m", api_key="sk-test")
        await drive(None, provider)
        await drive(agent, provider)
    plain, watched = server.received[:2], server.received[2:]
    assert [request.raw for request in watched] == [request.raw for request in plain]
    assert [request.headers for request in watched] == [request.headers for request in plain]
    assert [request.target for request in watched] == ["/v1/chat/completions"] * 2


# --- with what ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        (None, "own"),
        (RunOpts(), "own"),
        (RunOpts(model=None), "own"),
        (RunOpts(model=""), "own"),
        (RunOpts(model="other"), "other"),
        (RunOpts("other"), "other"),
    ],
)
async def test_a_model_may_be_chosen_for_one_call(opts: RunOpts | None, expected: str) -> None:
    """For all of its requests, and for no other call; None and nothing mean the agent's."""
    provider = FakeProvider([call("look", {"at": "tree"}), text("one"), text("two")])
    async with Toolkit([look]) as toolkit:
        loop = Agent("a", model="own").loop(provider, toolkit)
        await loop.run("do it", opts)
        await loop.run("do it")
    assert [request.model for request in provider.requests] == [expected, expected, "own"]


@pytest.mark.parametrize(
    ("own", "chosen", "expected"),
    [("", None, "of the provider"), ("", "", "of the provider"), ("own", None, "own"), ("", "x", "x")],
)
async def test_the_providers_model_is_the_last_resort(
    own: str, chosen: str | None, expected: str
) -> None:
    """Of call, agent and provider the first that names one."""
    async with serve_llm(replies()[1]) as server, Toolkit(builtins=False) as toolkit:
        provider = openai_provider(base_url=server.url, model="of the provider")
        await Agent("a", model=own).loop(provider, toolkit).run("do it", RunOpts(chosen))
    assert server.received[0].body["model"] == expected


async def test_the_soul_is_the_system_prompt_and_nothing_is_added() -> None:
    """As it is, in every request; what the agent does is told to nobody."""
    provider = FakeProvider([call("look", {"at": "tree"}), text("done")])
    async with Toolkit([look], builtins=False) as toolkit:
        await Agent("name", does="does", soul=" be\n brief ").loop(provider, toolkit).run("do it")
    assert [request.system for request in provider.requests] == [" be\n brief "] * 2
    first = provider.requests[0]
    assert [block for message in first.messages for block in message.content] == [TextBlock("do it")]
    assert [definition.name for definition in first.tools] == ["look"]


async def test_without_a_soul_there_is_no_system_prompt() -> None:
    """Hango authors none."""
    async with serve_llm(replies()[1]) as server, Toolkit(builtins=False) as toolkit:
        provider = openai_provider(base_url=server.url, model="m")
        outcome = await Agent("a").loop(provider, toolkit).run("do it")
    assert outcome.text == "done"
    assert server.received[0].body["model"] == "m"
    assert server.received[0].body["messages"] == [{"role": "user", "content": "do it"}]
    assert "tools" not in server.received[0].body


async def test_every_run_is_a_conversation_of_its_own() -> None:
    """A loop remembers how it went, not what was said."""
    provider = FakeProvider([text("one"), text("two")])
    async with Toolkit(builtins=False) as toolkit:
        loop = Agent("a").loop(provider, toolkit)
        first, second = [await loop.run(prompt) for prompt in ("a", "b")]
    assert [len(request.messages) for request in provider.requests] == [1, 1]
    assert (first.text, second.text) == ("one", "two")
    assert second.result.usage == first.result.usage
    assert (first.turns, second.turns, loop.turns) == (1, 1, 2)
