"""Gates and executions that end early: nothing is bought twice, no attempt and no reason is lost."""

from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango import Completion, RunResult, ToolCall, Verdict
from hango.domain import (
    ErrorCode,
    Interrupted,
    OutcomeStatus,
    Result,
    RunError,
    RunOutcome,
    StopReason,
    ToolContext,
    ToolUseBlock,
    Usage,
)
from hango.testing import Answer

from support.gates import PASS, failed, gate, no, verifier_and_gate
from support.loop_bench import Bench, asks, ended, says

CALL = ToolUseBlock("a", "get_time")
LATE = RunError(ErrorCode.DEADLINE_EXCEEDED, "took too long")


async def hang(_: RunResult) -> Verdict:
    """Never decide."""
    await trio.sleep_forever()


async def cut_short(bench: Bench) -> tuple[RunOutcome, Interrupted]:
    """Cancel an execution when nothing moves; return what it comes to as failed, and as cancelled."""
    loop = bench.loop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.execute, loop)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return loop.failed(LATE), loop.interrupted()


async def judging(*script: Answer) -> Bench:
    """Have a run whose last answer was being judged when its execution ended."""
    bench = Bench(script, completion=Completion(hang, 3))
    await cut_short(bench)
    return bench


async def rejected(reason: str = "no tests") -> Bench:
    """Have a run that was handed over at the boundary after its first rejection."""
    bench = Bench([says("done")], completion=gate(no(reason)))
    bench.transcript.handing_over = True
    assert await bench.execute() == Interrupted()
    bench.transcript.handing_over = False
    return bench


# --- after a crash --------------------------------------------------------------------------


@pytest.mark.rule(8)
@pytest.mark.rule(24)
async def test_an_answer_that_was_stored_and_not_judged_is_judged_and_not_bought_again() -> None:
    """A crash between answer and verdict costs nothing."""
    first = await judging(asks(CALL), says("done"))
    judge, completion = verifier_and_gate(PASS)
    second = Bench(transcript=first.transcript, completion=completion)
    outcome = await second.run()
    assert second.provider.calls == 0
    assert ended(outcome) == (OutcomeStatus.DONE, None, "")
    assert (outcome.iterations, outcome.usage, outcome.messages) == (2, Usage(20, 3), ())
    (asked,) = judge.asked
    assert (asked.text, asked.turns, asked.usage) == ("done", 2, Usage(20, 3))
    assert asked.tool_calls == (ToolCall("get_time", {}, "noon", is_error=False),)


@pytest.mark.rule(8)
@pytest.mark.rule(24)
async def test_a_verdict_that_was_not_stored_is_asked_for_again() -> None:
    """A crash between verdict and feedback: nobody was told, so it was no rejection yet."""
    first = Bench([says("done")])
    judge, first.completion = verifier_and_gate(no("no tests"))
    with trio.CancelScope() as scope:
        judge.before = scope.cancel
        await first.execute()
    assert len(judge.asked) == 1
    assert first.story() == ["0 user text", "1 assistant text"]

    again, completion = verifier_and_gate(no("no tests"), PASS)
    second = Bench([says("now")], transcript=first.transcript, completion=completion)
    outcome = await second.run()
    assert outcome.iterations == 2
    assert again.asked[0] == judge.asked[0]
    assert second.story()[1:] == ["1 assistant text", "1 user text synthetic", "2 assistant text"]


@pytest.mark.rule(7)
@pytest.mark.rule(24)
@pytest.mark.parametrize("attempts", [2, 3])
async def test_attempts_and_reason_survive_a_crash_in_the_second_attempt(attempts: int) -> None:
    """Rule 10: what one execution was told counts in the next."""
    first = await rejected()
    second = Bench([asks(CALL)], hang_in_tool, transcript=first.transcript)
    late, _ = await cut_short(second)
    both = f"deadline_exceeded; {failed(1, 'no tests')}"
    assert ended(late) == (OutcomeStatus.ERROR, ErrorCode.DEADLINE_EXCEEDED, both)

    completion = gate(no("no docs"), no("no luck"), attempts=attempts)
    third = Bench([says("done")] * 2, transcript=first.transcript, completion=completion)
    outcome = await third.run()
    last = "no docs" if attempts == 2 else "no luck"
    assert ended(outcome) == (OutcomeStatus.INCOMPLETE, ErrorCode.INCOMPLETE, failed(attempts, last))
    assert third.provider.calls == attempts - 1


async def hang_in_tool(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
    """Never come to a result."""
    await trio.sleep_forever()


@pytest.mark.rule(7)
@pytest.mark.rule(24)
async def test_a_feedback_whose_answer_was_lost_is_not_given_twice() -> None:
    """D17: it was stored, so the next execution is in the second attempt."""
    first = Bench([says("done")], completion=gate(no("no tests")))
    loop = first.loop()
    with trio.CancelScope() as scope:
        first.transcript.after_write = lambda done: scope.cancel() if done == "end_turn" else None
        await first.execute(loop)
    late = loop.failed(LATE)
    assert (late.iterations, late.usage, late.messages) == (1, Usage(10, 1), ())
    assert late.stopped_by == f"deadline_exceeded; {failed(1, 'no tests')}"
    assert loop.interrupted() == Interrupted()

    first.transcript.after_write = str
    second = Bench([says("now")], transcript=first.transcript, completion=gate(PASS))
    assert (await second.run()).iterations == 2
    assert second.story()[1:] == ["1 assistant text", "1 user text synthetic", "2 assistant text"]


@pytest.mark.rule(24)
async def test_a_cut_short_answer_is_told_as_such_by_whoever_judges_it() -> None:
    """Its calls never ran, not even in the next execution."""
    first = await judging(asks(CALL, stop=StopReason.MAX_TOKENS))
    second = Bench([says("done")], transcript=first.transcript, completion=gate(no("no tests"), PASS))
    await second.run()
    assert second.tools.calls == []
    assert second.provider.complaints == []
    assert second.story()[2] == "1 user tool_result,text synthetic"


# --- cancelled, late, handed over -----------------------------------------------------------


@pytest.mark.rule(11)
@pytest.mark.rule(24)
async def test_a_run_cut_short_while_it_is_judged_keeps_its_answer() -> None:
    """It is stored whole, so nothing is partial; as late, it names that, and counts what it cost."""
    bench = Bench([asks(CALL), says("done")], completion=Completion(hang, 3))
    late, cancelled = await cut_short(bench)
    assert cancelled == Interrupted()
    assert ended(late) == (OutcomeStatus.ERROR, ErrorCode.DEADLINE_EXCEEDED, "deadline_exceeded")
    assert (late.messages, late.iterations, late.usage) == ((), 1, Usage(20, 3))
    assert bench.story()[-1] == "2 assistant text"
    assert bench.transcript.writes == ["append", "end_turn", "append"]


@pytest.mark.rule(11)
@pytest.mark.rule(24)
async def test_a_verifier_in_a_thread_does_not_hold_up_a_cancel() -> None:
    """It goes on without anybody waiting, and its verdict is dropped."""
    released = threading.Event()

    def slow(_: RunResult) -> Verdict:
        released.wait(60)
        return PASS

    bench = Bench([says("done")], completion=Completion(slow, 3))
    late, _ = await cut_short(bench)
    released.set()
    assert late.status is OutcomeStatus.ERROR
    assert bench.transcript.writes == ["append"]


@pytest.mark.rule(24)
async def test_a_run_is_handed_over_at_the_boundary_that_a_rejection_makes() -> None:
    """A drain waits for a verdict, not for the next attempt."""
    first = await rejected()
    assert first.provider.calls == 1
    assert (first.transcript.resume_turn, first.transcript.usage) == (1, Usage(10, 1))
    second = Bench([says("now")], transcript=first.transcript, completion=gate(PASS))
    outcome = await second.run()
    assert (outcome.status, outcome.iterations, outcome.usage) == (OutcomeStatus.DONE, 2, Usage(20, 2))


# --- a gate that was changed meanwhile ------------------------------------------------------


@pytest.mark.rule(24)
async def test_without_its_gate_a_run_ends_by_its_stored_answer() -> None:
    """The agent is the one of today; nothing is bought again for that."""
    first = await judging(says("done"))
    second = Bench(transcript=first.transcript)
    outcome = await second.run()
    assert ended(outcome) == (OutcomeStatus.DONE, None, "")
    assert (outcome.messages, outcome.iterations, second.provider.calls) == ((), 1, 0)


@pytest.mark.rule(24)
async def test_with_a_gate_that_allows_less_the_next_rejection_is_the_last() -> None:
    """An attempt that has begun is judged; what it was told before still counts."""
    first = await rejected()
    second = Bench(
        [says("done")] * 2, transcript=first.transcript, completion=gate(no("no docs"), attempts=1)
    )
    outcome = await second.run()
    assert outcome.stopped_by == failed(2, "no docs")
    assert second.provider.calls == 1


@pytest.mark.rule(24)
async def test_a_gate_that_came_later_judges_what_is_not_settled() -> None:
    """A turn that was only finished is no attempt."""
    first = Bench([asks(CALL)])
    first.transcript.handing_over = True
    await first.execute()
    first.transcript.handing_over = False
    completion = gate(no("no tests"), attempts=1)
    outcome = await Bench([says("done")], transcript=first.transcript, completion=completion).run()
    assert outcome.stopped_by == failed(1, "no tests")
