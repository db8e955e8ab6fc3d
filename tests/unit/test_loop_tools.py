"""The calls of one turn: together, bounded, in order, and stoppable."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.agent import LoopLimits
from hango.domain import (
    OutcomeStatus,
    Result,
    Streamed,
    ToolContext,
    ToolFinished,
    ToolResultBlock,
    ToolStarted,
    ToolUseBlock,
)

from support.loop_bench import Bench, asks, says


def calls(count: int) -> list[ToolUseBlock]:
    """Return that many calls."""
    return [ToolUseBlock(f"c{n}", "get_time", {"n": n}) for n in range(count)]


@pytest.mark.rule(19)
async def test_results_are_one_message_in_request_order() -> None:
    """B04: the first call is the slowest, and its result is still the first."""
    others = trio.Event()

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:
        if context.ordinal == 0:
            await others.wait()
        if context.ordinal == 2:
            others.set()
        return Result(f"of {call.id}")

    bench = Bench([asks(*calls(3)), says("done")], body)
    await bench.run()
    results = bench.transcript.messages[2]
    assert (results.turn, results.role) == (1, "user")
    assert results.content == tuple(ToolResultBlock(f"c{n}", f"of c{n}") for n in range(3))


@pytest.mark.rule(19)
async def test_calls_run_together_but_not_all_at_once() -> None:
    """As many as allowed run at the same time, the first ones first; the rest wait for a place."""
    gate = trio.Event()
    running: list[int] = []

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        running.append(context.ordinal)
        await gate.wait()
        return Result("noon")

    bench = Bench([asks(*calls(7)), says("done")], body, LoopLimits(tools_at_once=3))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await wait_all_tasks_blocked()
        assert sorted(running) == [0, 1, 2]
        gate.set()
    assert sorted(running) == list(range(7))


async def test_a_call_knows_which_one_it_is() -> None:
    """Run, turn, ordinal and id tell a call apart, the same whenever it runs again."""
    bench = Bench([asks(*calls(2)), asks(*calls(1)), says("done")])
    await bench.run()
    contexts = sorted(bench.tools.calls, key=lambda c: (c.turn, c.ordinal))
    assert contexts == [
        ToolContext(bench.run_id, 1, 0, "c0"),
        ToolContext(bench.run_id, 1, 1, "c1"),
        ToolContext(bench.run_id, 2, 0, "c0"),
    ]


@pytest.mark.rule(18)
async def test_an_error_result_goes_to_the_model_and_the_loop_goes_on() -> None:
    """A tool's failure is an observation, not the end."""

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        return Result("no such zone", is_error=True)

    bench = Bench([asks(*calls(1)), says("sorry")], body)
    assert (await bench.run()).status is OutcomeStatus.DONE
    expected = ToolResultBlock("c0", "no such zone", is_error=True)
    assert bench.provider.requests[1].messages[-1].content == (expected,)


@pytest.mark.rule(21)
@pytest.mark.parametrize(
    ("result", "for_user"),
    [(Result("noon"), None), (Result("noon", "noon"), None), (Result("noon", "12:00"), "12:00")],
)
async def test_what_people_see_is_stored_only_where_it_differs(
    result: Result, for_user: str | None
) -> None:
    """The model is sent its own part; people's part stays in the transcript."""

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        return result

    bench = Bench([asks(*calls(1)), says("done")], body)
    await bench.run()
    assert bench.transcript.messages[2].content == (ToolResultBlock("c0", "noon", for_user=for_user),)
    assert bench.provider.requests[1].messages[-1].content == (ToolResultBlock("c0", "noon"),)


@pytest.mark.rule(20)
async def test_results_pass_the_codec() -> None:
    """C01: a toolbox that lets NUL through does not break the turn."""

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        return Result("a\0", "b\0")

    bench = Bench([asks(*calls(1)), says("done")], body)
    await bench.run()
    expected = ToolResultBlock("c0", "a\ufffd", for_user="b\ufffd")
    assert bench.transcript.messages[2].content == (expected,)


@pytest.mark.rule(11)
@pytest.mark.rule(18)
async def test_a_tool_that_swallows_its_cancellation_does_not_finish_the_turn() -> None:
    """C07: the loop looks again whether it was cancelled before it stores anything."""
    started = trio.Event()

    async def stubborn(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        started.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return Result("never mind")

    bench = Bench([asks(*calls(2)), says("done")], stubborn)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.run)
            await started.wait()
            scope.cancel()
    assert bench.transcript.writes == ["append"]
    assert bench.provider.calls == 1


async def test_watchers_see_the_run_as_it_happens() -> None:
    """Every provider event is forwarded, and each call's beginning and end."""
    bench = Bench([asks(*calls(1)), says("done")])
    await bench.run()
    kinds = [type(event).__name__ for event in bench.sink.events]
    assert kinds == [
        "TurnStarted",
        *["Streamed"] * len(asks(*calls(1)).steps),
        "ToolStarted",
        "ToolFinished",
        "TurnStarted",
        *["Streamed"] * len(says("done").steps),
    ]
    streamed = [told.event for told in bench.sink.of(Streamed)]
    assert streamed == [*asks(*calls(1)).steps, *says("done").steps]
    assert bench.sink.of(ToolStarted)[0].call == calls(1)[0]
    assert bench.sink.of(ToolFinished)[0].result == ToolResultBlock("c0", "noon")


@pytest.mark.rule(11)
async def test_no_call_starts_once_the_run_is_cancelled() -> None:
    """Cancelled, or without its lease, while the calls of a turn are being started."""
    started: list[int] = []

    async def body(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        started.append(context.ordinal)
        scope.cancel()
        return Result("noon")

    for _ in range(20):  # which task is first is up to chance
        bench = Bench([asks(*calls(3)), says("done")], body)
        started.clear()
        with trio.CancelScope() as scope:
            await bench.run()
        assert len(started) == 1
