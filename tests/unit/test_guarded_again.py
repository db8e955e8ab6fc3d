"""Guardrails and executions that end early: calls that are driven again, runs that are cancelled."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango import BeforeToolEvent, Effects, Guardrail, tool
from hango.domain import (
    EarlierCall,
    OutcomeStatus,
    Result,
    ToolContext,
    ToolResultBlock,
    ToolStarted,
    ToolUseBlock,
)
from hango.errors import StateConflict
from hango.telemetry import names

from support.counters import counted
from support.loop_bench import Bench, asks, says
from support.tools import counting, view_of

CALLS = [ToolUseBlock(f"c{n}", "buy") for n in range(3)]
DENIED = ToolResultBlock("c0", "denied: not today", is_error=True)


@tool(effects=Effects.UNSAFE)
async def buy() -> str:
    """Buy."""
    return "bought"


async def not_today(_: BeforeToolEvent) -> str:
    """Deny."""
    return "not today"


def answered(bench: Bench) -> tuple[object, ...]:
    """Return the results of the first turn, as they are stored."""
    return bench.transcript.messages[2].content


async def cut_short(guardrails: list[Guardrail]) -> Bench:
    """Have a run whose only call was cut short while its tool worked."""

    async def hang(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        await trio.sleep_forever()

    bench = Bench([asks(CALLS[0])], hang, guardrails=guardrails)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.execute)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return bench


@pytest.mark.rule(9)
@pytest.mark.rule(23)
@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (None, DENIED),
        (Result("bought", "for you"), ToolResultBlock("c0", "bought", for_user="for you")),
        (Result("sold out", is_error=True), ToolResultBlock("c0", "sold out", is_error=True)),
    ],
    ids=["never begun", "recorded", "recorded error"],
)
async def test_a_call_denied_when_driven_again_is_told_as_what_became_of_it(
    recorded: Result | None, expected: ToolResultBlock
) -> None:
    """What has happened has happened, whatever a guardrail says about it now."""
    first = await cut_short([])
    second = Bench([says("done")], transcript=first.transcript, guardrails=[not_today])
    second.toolbox = view_of(buy)
    if recorded is not None:
        second.ledger.calls[second.run_id, 1, 0] = EarlierCall(Effects.UNSAFE, recorded)
    errors = counted(names.TOOL_ERRORS)
    await second.run()
    assert answered(second) == (expected,)
    assert counted(names.TOOL_ERRORS) == errors + (recorded is None)


@pytest.mark.rule(9)
@pytest.mark.rule(23)
async def test_a_call_denied_after_it_had_begun_may_have_taken_effect() -> None:
    """And the model is told so: it must not take a call for never made."""
    first = await cut_short([])
    second = Bench([says("done")], transcript=first.transcript, guardrails=[not_today])
    second.toolbox = view_of(buy)
    second.ledger.calls[second.run_id, 1, 0] = EarlierCall(Effects.UNSAFE)
    with counting("buy", "denied"):
        await second.run()
    told = "denied: not today; it was started before that and cut short, so it may have taken effect"
    assert answered(second) == (ToolResultBlock("c0", told, is_error=True),)
    assert list(second.ledger.calls.values()) == [EarlierCall(Effects.UNSAFE)]


@pytest.mark.rule(23)
async def test_a_call_that_is_driven_again_is_asked_about_again() -> None:
    """Permission is of one start; the guardrails are those of today."""
    events: list[BeforeToolEvent] = []

    async def note(event: BeforeToolEvent) -> None:
        events.append(event)

    first = await cut_short([note])
    second = Bench([says("done")], transcript=first.transcript, guardrails=[note])
    await second.run()
    assert events == [BeforeToolEvent("buy", {}, "c0", 1)] * 2
    assert len(second.tools.calls) == 1


# --- cancelled, and lost --------------------------------------------------------------------


async def wait_for_ever(_: BeforeToolEvent) -> str:
    """Never decide."""
    await trio.sleep_forever()


async def swallow(_: BeforeToolEvent) -> str:
    """Permit instead of being cancelled."""
    with contextlib.suppress(trio.Cancelled):
        await trio.sleep_forever()
    return "allow"


@pytest.mark.rule(11)
@pytest.mark.rule(23)
@pytest.mark.parametrize("guardrail", [wait_for_ever, swallow])
async def test_a_run_cancelled_while_a_guardrail_decides_starts_no_tool(
    guardrail: Callable[[BeforeToolEvent], Awaitable[str]],
) -> None:
    """C07: not even when the guardrail makes a permission of the cancel."""
    bench = Bench([asks(*CALLS)], guardrails=[guardrail])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.execute)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert bench.tools.calls == []
    assert bench.sink.of(ToolStarted) == []
    assert bench.transcript.writes == ["append"]


@pytest.mark.rule(23)
async def test_an_error_of_the_store_that_a_guardrail_meets_is_the_guardrails() -> None:
    """It denies as any other; only the ledger's own errors end an execution."""

    async def guardrail(_: BeforeToolEvent) -> str:
        raise StateConflict("of another store")

    bench = Bench([asks(CALLS[0]), says("done")], guardrails=[guardrail])
    assert (await bench.run()).status is OutcomeStatus.DONE
    told = "denied: a guardrail failed: StateConflict: of another store"
    assert answered(bench) == (ToolResultBlock("c0", told, is_error=True),)
