"""When an execution is cut short from outside: what is kept, and what it says it came to."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.domain import (
    ErrorCode,
    Interrupted,
    OutcomeStatus,
    Result,
    RunError,
    RunOutcome,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolContext,
    ToolUseBlock,
    Usage,
    UsageUpdate,
)
from hango.testing import Answer, hanging
from hango.testing.scripts import Step

from support.loop_bench import Bench, asks, ended, says

CALL = ToolUseBlock("a", "get_time")
LATE = RunError(ErrorCode.DEADLINE_EXCEEDED, "took too long")


async def cut_short(bench: Bench) -> tuple[RunOutcome, Interrupted]:
    """Cancel an execution when nothing moves; return what it comes to as failed, and as cancelled."""
    loop = bench.loop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.execute, loop)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return loop.failed(LATE), loop.interrupted()


@pytest.mark.rule(11)
@pytest.mark.rule(16)
async def test_a_stream_cut_short_from_outside_leaves_what_had_arrived() -> None:
    """The first turn: the input and the partial answer, and the stream is closed."""
    said: list[Step] = [ThinkingDelta(0, "hm"), SignatureDelta(0, "c2ln"), TextDelta(1, "so")]
    bench = Bench([Answer((*said, UsageUpdate(Usage(3)), trio.Event()))])
    failed, interrupted = await cut_short(bench)
    assert bench.provider.closed == bench.provider.calls
    assert [(m.turn, m.role, m.partial) for m in failed.messages] == [
        (0, "user", False),
        (1, "assistant", True),
    ]
    assert [m.content for m in interrupted.messages] == [m.content for m in failed.messages]
    assert ended(failed) == (OutcomeStatus.ERROR, ErrorCode.DEADLINE_EXCEEDED, "deadline_exceeded")
    assert (failed.iterations, failed.usage) == (0, Usage(3))
    bench.settle(interrupted)
    assert bench.story() == ["0 user text", "1 assistant thinking,text partial"]


@pytest.mark.rule(16)
async def test_a_stream_cut_short_before_content_leaves_no_message() -> None:
    """In a later turn the input is stored, and an empty partial is not made."""
    bench = Bench([asks(CALL), hanging(TextBlock(""))])
    failed, interrupted = await cut_short(bench)
    assert failed.messages == interrupted.messages == ()
    assert (failed.iterations, failed.usage) == (1, Usage(10, 2))


@pytest.mark.rule(11)
async def test_tools_cut_short_leave_the_stored_answer_and_count_what_it_cost() -> None:
    """Their results are lost; the next run finds the calls dangling and answers them."""

    async def hang(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
        await trio.sleep_forever()

    bench = Bench([asks(CALL)], hang)
    failed, interrupted = await cut_short(bench)
    assert failed.messages == interrupted.messages == ()
    assert (failed.iterations, failed.usage) == (0, Usage(10, 2))
    assert bench.story() == ["0 user text", "1 assistant tool_use"]


@pytest.mark.rule(7)
@pytest.mark.parametrize("write", ["append", "end_turn"])
async def test_a_cancel_during_a_write_that_was_done_counts_it_once(write: str) -> None:
    """D17: the transcript knows what is stored, so nothing is told twice."""
    bench = Bench([asks(CALL), says("late")])
    loop = bench.loop()
    with trio.CancelScope() as scope:
        bench.transcript.after_write = lambda done: scope.cancel() if done == write else None
        await bench.execute(loop)
    assert scope.cancelled_caught
    assert bench.transcript.writes[-1] == write
    failed = loop.failed(LATE)
    assert failed.messages == ()
    assert failed.usage == Usage(10, 2)
    assert failed.iterations == bench.transcript.resume_turn == (write == "end_turn")
    assert loop.interrupted() == Interrupted()
