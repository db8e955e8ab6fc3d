"""More of everything than anybody needs, through whole runs: bounded before it is stored."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hango.agent.accumulator import MAX_ANSWER
from hango.agent.blocks import MAX_BLOCK
from hango.agent.prompt import INTERRUPTED
from hango.domain import (
    Effects,
    ErrorCode,
    ProviderRequest,
    Result,
    Run,
    StopReason,
    TextBlock,
    ToolResultBlock,
)
from hango.safe_errors import MAX_MESSAGE
from hango.testing import Answer, FakeProvider, answer, call, text
from hango.testing.plugin import SeededTenant, sql
from hango.tools import tool

from support.workers import SETTINGS, started_worker, until

pytestmark = pytest.mark.rule(20)

MUCH = 20_000_000  # characters
LIMIT = SETTINGS.tool_result_limit


@tool(effects=Effects.READ_ONLY)
def flood() -> str:
    """Return far too much text, of characters that a cut could break."""
    return "🌊" * (MUCH // 4)


@tool(effects=Effects.READ_ONLY)
def flood_data() -> object:
    """Return far too much data."""
    return {"rows": ["x" * 1000] * (MUCH // 1000)}


@tool(effects=Effects.READ_ONLY)
def flood_people() -> Result:
    """Return little for the model and far too much for people."""
    return Result("short", for_user="x" * MUCH)


@tool(effects=Effects.READ_ONLY)
def flood_error() -> object:
    """Fail at far too great length."""
    raise ValueError("x" * MUCH)


@tool(effects=Effects.READ_ONLY)
async def heard(said: str) -> int:
    """Tell how much was said."""
    return len(said)


DEEP = '{"said":' + "[" * 100_000

# what the model asks for, and how many bytes its one result may have, or what the result is
RESULTS: Mapping[str, tuple[Answer, int | str]] = {
    "text of a tool": (answer(call("flood")), LIMIT),
    "data of a tool": (answer(call("flood_data")), LIMIT),
    "text for people": (answer(call("flood_people")), "short"),
    "error of a tool": (answer(call("flood_error")), MAX_MESSAGE),
    "arguments": (answer(call("heard", {"said": "x" * MUCH})), MAX_MESSAGE),
    "arguments up to the bound": (answer(call("heard", {"said": "x" * (MAX_BLOCK - 12)})), "1048564"),
    "arguments without end": (answer(call("heard", '{"said": "' + "x" * MUCH)), MAX_MESSAGE),
    "arguments in depth": (answer(call("heard", DEEP)), MAX_MESSAGE),
    "arguments in depth, closed": (answer(call("heard", DEEP + "]" * 100_000 + "}")), MAX_MESSAGE),
    "many arguments": (answer(call("heard", {str(n): n for n in range(50_000)})), MAX_MESSAGE),
    "a number of many digits": (answer(call("heard", '{"said": %s}' % ("9" * 5000))), MAX_MESSAGE),
    "name": (answer(call("n" * MUCH)), MAX_MESSAGE),
    "id": (answer(call("heard", {"said": "x"}, id="i" * MUCH)), "1"),
    "text beside a call": (answer(text("x" * MUCH), call("heard", {"said": "x"})), 0),
}


@pytest.mark.rule(18)
async def test_much_is_cut_before_it_is_stored_and_the_run_goes_on(world: SeededTenant) -> None:
    """C10, C04, C05: whatever there is too much of; nothing stored is larger than its bound."""
    ended = await play(world, {name: asks for name, (asks, _) in RESULTS.items()})
    for name, (_, bound) in RESULTS.items():
        results = await results_of(world, ended[name])
        assert ended[name].state.value == "succeeded", (name, ended[name].error)
        if isinstance(bound, str):
            assert [result.content for result in results] == [bound], name
        elif bound:
            assert 0 < len(results[0].content.encode()) <= bound, name
        assert all("\ufffd" not in result.content for result in results), name
        assert all(len((result.for_user or "").encode()) <= LIMIT for result in results), name
    assert await largest(world) < MAX_ANSWER


CALLS = [call("heard", {"said": "x"})] * 5000

# what the model answers, and how the run ends
ANSWERS: Mapping[str, tuple[Answer, ErrorCode | None]] = {
    "calls": (answer(*CALLS), ErrorCode.PROVIDER_ERROR),
    "calls, cut short": (answer(*CALLS, stop=StopReason.MAX_TOKENS), ErrorCode.PROVIDER_ERROR),
    "calls, said to be none": (answer(*CALLS, stop=StopReason.END_TURN), ErrorCode.PROVIDER_ERROR),
    "one call too many": (answer(*CALLS[:65]), ErrorCode.PROVIDER_ERROR),
    "as many calls as may be": (answer(*CALLS[:64]), None),
    "large results, as many as may be": (answer(*[call("flood_people")] * 64), None),
    "text": (answer(text("x" * MUCH)), None),
    "texts": (answer(*[text("x" * 100)] * 10_000), None),
    "empty texts": (answer(*[text("")] * 10_000), None),
    "nothing": (answer(), None),
}


@pytest.mark.rule(19)
async def test_an_answer_without_measure_ends_the_run_or_is_cut(world: SeededTenant) -> None:
    """B15, C10: too many calls fail the run, none of them run; too much text is cut; all is bounded."""
    ended = await play(world, {name: answered for name, (answered, _) in ANSWERS.items()})
    codes = {name: run.error.code if run.error else None for name, run in ended.items()}
    assert codes == {name: code for name, (_, code) in ANSWERS.items()}
    for name, run in ended.items():
        results = [each for each in await results_of(world, run) if each.content != INTERRUPTED]
        assert len(results) == (64 if "as many" in name else 0), name
    assert await largest(world) < 2 * 64 * LIMIT


async def play(world: SeededTenant, script: Mapping[str, Answer]) -> dict[str, Run]:
    """Execute one run for each answer, and then another one in its session, which must succeed."""

    def say(request: ProviderRequest) -> Answer:
        texts = [block.text for block in request.messages[-1].content if isinstance(block, TextBlock)]
        return script.get(texts[-1], answer(text("done"))) if texts else answer(text("done"))

    provider = FakeProvider(say)
    async with started_worker(world, provider, flood, flood_data, flood_people, flood_error, heard):
        sessions = {name: await world.session() for name in script}
        runs = [await world.run(sessions[name], name) for name in script]
        ended = await until(world, runs)
        later = await until(world, [await world.run(session, "later") for session in sessions.values()])
    assert provider.complaints == []
    assert {run.state.value for run in later} == {"succeeded"}
    return dict(zip(script, ended, strict=True))


async def results_of(world: SeededTenant, run: Run) -> list[ToolResultBlock]:
    """Return the results of a run's tools."""
    messages = await world.sessions.messages(world.scope(), run.session_id, limit=200)
    blocks = [block for message in messages if message.run_id == run.id for block in message.content]
    return [block for block in blocks if isinstance(block, ToolResultBlock)]


async def largest(world: SeededTenant) -> int:
    """Return the size of the largest message stored, in bytes."""
    found = await sql(world.pool, "select max(octet_length(content::text)) as bytes from messages")
    return int(str(found[0]["bytes"]))
