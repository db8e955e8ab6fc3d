"""A turn driven again: its calls and the ledger, as the loop brings them together."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.domain import EarlierCall, Effects, Result, ToolContext, ToolResultBlock, ToolUseBlock
from hango.errors import StateConflict, StoreError, StoreUnavailable
from hango.tools import tool

from support.loop_bench import Bench, asks, says
from support.tools import view_of

CALLS = [ToolUseBlock(f"c{n}", "get_time") for n in range(3)]


async def hang(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
    """Never come to a result."""
    await trio.sleep_forever()


@pytest.mark.rule(3)
@pytest.mark.rule(9)
@pytest.mark.parametrize("error", [StateConflict("not ours"), StoreUnavailable("away")])
async def test_an_error_of_the_ledger_ends_the_execution_as_itself(error: StoreError) -> None:
    """Not in a group, which nobody would know; the other calls are cancelled, no result is made up."""
    ended: list[int] = []

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        try:
            if context.ordinal == 1:
                await wait_all_tasks_blocked()
                raise error
            await trio.sleep_forever()
        finally:
            ended.append(context.ordinal)

    bench = Bench([asks(*CALLS)], body)
    with trio.fail_after(20), pytest.raises(type(error)) as raised:
        await bench.execute()
    assert raised.value is error
    assert sorted(ended) == [0, 1, 2]
    assert bench.transcript.writes == ["append"]


@pytest.mark.rule(9)
async def test_each_call_of_a_turn_is_known_by_its_place() -> None:
    """Two calls of one tool in one turn are two; in the next turn they are others."""
    keys: list[str] = []

    @tool(effects=Effects.UNSAFE)
    async def get_time(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return "noon"

    bench = Bench([asks(*CALLS[:2]), asks(CALLS[0]), says("done")])
    bench.toolbox = view_of(get_time)
    await bench.run()
    assert sorted(keys) == [f"{bench.run_id}:{place}" for place in ("1:0", "1:1", "2:0")]
    assert list(bench.ledger.calls) == [
        (bench.run_id, 1, 0),
        (bench.run_id, 1, 1),
        (bench.run_id, 2, 0),
    ]


@pytest.mark.rule(9)
async def test_a_turn_driven_again_uses_what_is_recorded_of_its_calls() -> None:
    """One that has a result, one that was cut short, and one that was not begun, in request order."""
    ran: list[int] = []

    @tool(effects=Effects.UNSAFE)
    async def get_time(context: ToolContext) -> str:
        ran.append(context.ordinal)
        return "now"

    first = Bench([asks(*CALLS)], hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.execute)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    second = Bench([says("done")], transcript=first.transcript)
    second.toolbox = view_of(get_time)
    second.ledger.calls[second.run_id, 1, 0] = EarlierCall(Effects.UNSAFE, Result("then", "for you"))
    second.ledger.calls[second.run_id, 1, 1] = EarlierCall(Effects.UNSAFE)
    await second.run()
    cut = "get_time was started before and cut short, so it may have taken effect; it was not run again"
    assert ran == [2]
    assert second.transcript.messages[2].content == (
        ToolResultBlock("c0", "then", for_user="for you"),
        ToolResultBlock("c1", cut, is_error=True),
        ToolResultBlock("c2", "now"),
    )
