"""Guardrails before the calls of a turn: what starts, what the model is told, what is recorded."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango import BeforeToolEvent, Effects, Guardrail, tool
from hango.agent.completion import result_of
from hango.domain import (
    OutcomeStatus,
    Result,
    ToolContext,
    ToolFinished,
    ToolResultBlock,
    ToolStarted,
    ToolUseBlock,
)

from support.loop_bench import Bench, asks, says
from support.tools import counting, view_of

SAFE, FORBIDDEN = "look", "buy"
TRIO = [ToolUseBlock("c0", SAFE), ToolUseBlock("c1", FORBIDDEN), ToolUseBlock("c2", SAFE)]
DENIED = ToolResultBlock("c1", "denied: not today", is_error=True)


async def not_today(event: BeforeToolEvent) -> str:
    """Deny what is forbidden."""
    return "not today" if event.name == FORBIDDEN else "allow"


def not_today_at_once(event: BeforeToolEvent) -> str | None:
    """Deny what is forbidden, in a thread."""
    return "not today" if event.name == FORBIDDEN else None


async def not_today_later(event: BeforeToolEvent) -> str:
    """Deny what is forbidden, after everything else that can happen has happened."""
    await wait_all_tasks_blocked()
    return await not_today(event)


async def failing(event: BeforeToolEvent) -> str:
    """Fail at what is forbidden, after a while."""
    await wait_all_tasks_blocked()
    if event.name == FORBIDDEN:
        raise LookupError("no list")
    return ""


def answered(bench: Bench) -> tuple[object, ...]:
    """Return the results of the first turn, as they are stored."""
    return bench.transcript.messages[2].content


@pytest.mark.rule(23)
@pytest.mark.parametrize("guardrail", [not_today, not_today_at_once, not_today_later])
async def test_a_denied_call_never_starts_and_its_siblings_do(guardrail: Guardrail) -> None:
    """B18: whenever the guardrail gets round to it; results are in request order."""
    bench = Bench([asks(*TRIO), says("done")], guardrails=[guardrail])
    outcome = await bench.run()
    assert sorted(context.call_id for context in bench.tools.calls) == ["c0", "c2"]
    assert answered(bench) == (ToolResultBlock("c0", "noon"), DENIED, ToolResultBlock("c2", "noon"))
    assert bench.provider.requests[1].messages[-1].content == answered(bench)
    assert outcome.status is OutcomeStatus.DONE


@pytest.mark.rule(23)
async def test_each_call_is_asked_about_before_its_own_start() -> None:
    """B18: a call that was permitted does not wait for one that is still asked about."""
    happened: list[str] = []
    started = trio.Event()

    async def guardrail(event: BeforeToolEvent) -> str:
        happened.append(f"asked {event.id}")
        if event.name == FORBIDDEN:
            await started.wait()
        return await not_today(event)

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        happened.append(f"started {call.id}")
        started.set()
        return Result("noon")

    bench = Bench([asks(*TRIO), says("done")], body, guardrails=[guardrail])
    await bench.run()
    assert sorted(happened) == ["asked c0", "asked c1", "asked c2", "started c0", "started c2"]
    for call in ("c0", "c2"):
        assert happened.index(f"asked {call}") < happened.index(f"started {call}")


@pytest.mark.rule(23)
async def test_a_guardrail_that_raises_denies_that_call_and_the_run_goes_on() -> None:
    """B18: it fails closed, for the call it was asked about and no other."""
    bench = Bench([asks(*TRIO), says("done")], guardrails=[failing])
    outcome = await bench.run()
    told = "denied: a guardrail failed: LookupError: no list"
    assert answered(bench)[1] == ToolResultBlock("c1", told, is_error=True)
    assert sorted(context.call_id for context in bench.tools.calls) == ["c0", "c2"]
    assert (outcome.status, outcome.stopped_by) == (OutcomeStatus.DONE, "")


@pytest.mark.rule(23)
async def test_the_turn_is_the_one_of_the_run() -> None:
    """It counts from 1, and every call of every turn is asked about."""
    events: list[BeforeToolEvent] = []
    bench = Bench(
        [asks(TRIO[0]), asks(ToolUseBlock("c1", SAFE, {"at": 5})), says("done")],
        guardrails=[events.append],
    )
    await bench.run()
    assert events == [BeforeToolEvent(SAFE, {}, "c0", 1), BeforeToolEvent(SAFE, {"at": 5}, "c1", 2)]


@pytest.mark.rule(23)
async def test_the_tool_gets_what_the_model_asked_for() -> None:
    """A guardrail decides; it does not rewrite."""
    seen: list[object] = []

    async def meddle(event: BeforeToolEvent) -> None:
        event.args.clear()  # type: ignore[attr-defined]  # the misbehaviour under test

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        seen.append(call.input)
        return Result("noon")

    call = ToolUseBlock("c0", SAFE, {"at": 5})
    bench = Bench([asks(call), says("done")], body, guardrails=[meddle])
    await bench.run()
    assert seen == [{"at": 5}]
    assert bench.transcript.messages[1].content == (call,)


# --- what is told and recorded --------------------------------------------------------------


@tool(effects=Effects.READ_ONLY)
async def look(at: int = 0) -> str:
    """Look."""
    return f"looked at {at}"


@tool(effects=Effects.UNSAFE)
async def buy() -> str:
    """Buy."""
    return "bought"


def shop(*calls: ToolUseBlock, guardrail: Guardrail = not_today) -> Bench:
    """Have a run with real tools that asks for *calls*."""
    bench = Bench([asks(*calls), says("done")], guardrails=[guardrail])
    bench.toolbox = view_of(look, buy)
    return bench


@pytest.mark.rule(23)
async def test_a_denied_call_is_recorded_once_and_counted_once() -> None:
    """As an error result in the transcript, and as one error of its tool; nothing in the ledger."""
    bench = shop(*TRIO)
    with counting("buy", "denied"):
        await bench.run()
    result = result_of(bench.transcript.messages, bench.run_id, usage=bench.transcript.usage, turns=2)
    assert [(call.name, call.output, call.is_error) for call in result.tool_calls] == [
        ("look", "looked at 0", False),
        ("buy", "denied: not today", True),
        ("look", "looked at 0", False),
    ]
    assert bench.ledger.calls == {}


@pytest.mark.rule(23)
async def test_watchers_see_that_a_denied_call_did_not_start() -> None:
    """Its end is told, its beginning is not: there was none."""
    bench = shop(*TRIO)
    await bench.run()
    started = {event.call.id for event in bench.sink.of(ToolStarted)}
    finished = {event.result.tool_use_id: event.result for event in bench.sink.of(ToolFinished)}
    assert started == {"c0", "c2"}
    assert set(finished) == {"c0", "c1", "c2"}
    assert finished["c1"] == DENIED


@pytest.mark.rule(23)
async def test_a_name_the_model_made_up_is_asked_about_like_any_other() -> None:
    """Denied, it is told as denied, and counted under no name of its own; permitted, it is unknown."""

    async def no_shell(event: BeforeToolEvent) -> str:
        return "no shells" if event.name == "bash" else "allow"

    bench = shop(ToolUseBlock("c0", "bash", {"command": "ls"}), guardrail=no_shell)
    with counting("_unknown", "denied"):
        await bench.run()
    assert answered(bench) == (ToolResultBlock("c0", "denied: no shells", is_error=True),)

    bench = shop(ToolUseBlock("c0", "zsh"), guardrail=no_shell)
    with counting("_unknown", "unknown_tool"):
        await bench.run()


@pytest.mark.rule(18)
@pytest.mark.rule(23)
async def test_arguments_that_are_no_object_are_not_asked_about() -> None:
    """C05: there is nothing to judge, and the call cannot happen anyway: its own error says why."""
    asked: list[BeforeToolEvent] = []

    async def guardrail(event: BeforeToolEvent) -> str:
        asked.append(event)
        return "no"

    bench = shop(ToolUseBlock("c0", "look", raw_input='{"at": '), guardrail=guardrail)
    with counting("look", "invalid_arguments"):
        await bench.run()
    assert asked == []


@pytest.mark.rule(18)
@pytest.mark.rule(23)
async def test_arguments_the_tool_does_not_take_are_asked_about_first() -> None:
    """What a guardrail denies is not looked at any further; what it permits is still checked."""
    call = ToolUseBlock("c0", "look", {"at": "everything"})
    with counting("look", "denied"):
        await shop(call, guardrail=lambda _: "no").run()
    with counting("look", "invalid_arguments"):
        await shop(call, guardrail=lambda _: "allow").run()


@pytest.mark.rule(20)
@pytest.mark.rule(23)
async def test_a_reason_is_stored_and_sent_clean_and_bounded() -> None:
    """C01, C10: the next request is one that every API takes."""
    bench = shop(*TRIO, guardrail=lambda _: "\0\ud800" + "x" * 1_000_000)
    await bench.run()
    (result, *_) = answered(bench)
    assert isinstance(result, ToolResultBlock)
    assert result.content.startswith("denied: \ufffd\ufffdx")
    assert len(result.content.encode()) < 2000
    assert bench.provider.complaints == []
