"""The loop and its completion gate: when it is asked, and what becomes of what it says."""

from __future__ import annotations

import pytest

from hango import ToolCall
from hango.agent import LoopLimits
from hango.agent.completion import CUT_SHORT
from hango.domain import (
    AttemptRejected,
    ErrorCode,
    OutcomeStatus,
    RunOutcome,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from hango.errors import ContextExceeded, ProviderError
from hango.testing import Answer, answer, broken, failing, text

from support.gates import PASS, failed, gate, no, verifier_and_gate
from support.loop_bench import Bench, asks, ended, says

CALL = ToolUseBlock("a", "get_time")
NOT_YET = TextBlock("Your work did not verify: no tests. Fix it and finish.")


def told(outcome: RunOutcome) -> str:
    """Return the message of a run's error."""
    return outcome.error.message if outcome.error else ""


# --- asked, and satisfied or not ------------------------------------------------------------


@pytest.mark.rule(24)
async def test_a_run_that_passes_is_done() -> None:
    """Its answer is stored before it is judged, so that there is nothing left to store."""
    judge, completion = verifier_and_gate(PASS)
    bench = Bench([asks(CALL), says("done")], completion=completion)
    outcome = await bench.run()
    assert ended(outcome) == (OutcomeStatus.DONE, None, "")
    assert (outcome.messages, outcome.stop_reason) == ((), StopReason.END_TURN)
    assert (outcome.iterations, outcome.usage) == (2, Usage(20, 3))
    assert bench.story()[-1] == "2 assistant text"
    assert bench.transcript.writes == ["append", "end_turn", "append"]
    (asked,) = judge.asked
    assert (asked.text, asked.turns, asked.usage) == ("done", 2, Usage(20, 3))
    assert asked.tool_calls == (ToolCall("get_time", {}, "noon", is_error=False),)
    assert asked.messages == bench.transcript.messages


@pytest.mark.rule(24)
async def test_a_rejected_run_is_told_why_and_tries_again() -> None:
    """One user message, word for word, stored as its turn's; then the provider is asked once more."""
    judge, completion = verifier_and_gate(no("no tests"), PASS)
    bench = Bench([says("done"), asks(CALL), says("really done")], completion=completion)
    outcome = await bench.run()
    assert ended(outcome) == (OutcomeStatus.DONE, None, "")
    assert bench.story() == [
        "0 user text",
        "1 assistant text",
        "1 user text synthetic",
        "2 assistant tool_use",
        "2 user tool_result",
        "3 assistant text",
    ]
    assert bench.provider.requests[1].messages[-1].content == (NOT_YET,)
    assert bench.transcript.messages[2].content == (NOT_YET,)
    assert [result.text for result in judge.asked] == ["done", "really done"]
    assert bench.sink.of(AttemptRejected) == [AttemptRejected(bench.run_id, 1, "no tests")]


@pytest.mark.rule(24)
async def test_calls_usage_and_turns_add_up_over_the_attempts() -> None:
    """A verifier sees the whole run, and so does whoever reads the outcome."""
    judge, completion = verifier_and_gate(no("1"), no("2"), PASS)
    script = [asks(CALL), says("one"), says("two"), asks(CALL), says("three")]
    bench = Bench(script, completion=completion)
    outcome = await bench.run()
    assert [(r.turns, r.usage, len(r.tool_calls)) for r in judge.asked] == [
        (2, Usage(20, 3), 1),
        (3, Usage(30, 4), 1),
        (5, Usage(50, 7), 2),
    ]
    assert (outcome.iterations, outcome.usage) == (5, Usage(50, 7))


@pytest.mark.rule(24)
@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_the_last_attempt_is_the_last(attempts: int) -> None:
    """B16: exactly that many; then the run is incomplete, names the gate, and asks nobody any more."""
    judge, completion = verifier_and_gate(*[no("no tests")] * 9, attempts=attempts)
    bench = Bench([says("done")] * 9, completion=completion)
    outcome = await bench.run()
    named = failed(attempts, "no tests")
    assert ended(outcome) == (OutcomeStatus.INCOMPLETE, ErrorCode.INCOMPLETE, named)
    assert told(outcome) == named
    assert outcome.messages == ()
    assert (bench.provider.calls, len(judge.asked)) == (attempts, attempts)
    assert (outcome.iterations, outcome.usage) == (attempts, Usage(10 * attempts, attempts))
    assert bench.story().count("1 user text synthetic") == (attempts > 1)
    assert bench.story()[-1] == f"{attempts} assistant text"


@pytest.mark.rule(24)
async def test_the_last_reason_is_the_one_that_is_named() -> None:
    """An empty one reads as none was given."""
    bench = Bench([says("done")] * 2, completion=gate(no("no tests"), no(""), attempts=2))
    outcome = await bench.run()
    assert outcome.stopped_by == failed(2, "unspecified")
    bench = Bench([says("done")] * 2, completion=gate(no(" "), PASS))
    await bench.run()
    unspecified = TextBlock("Your work did not verify: unspecified. Fix it and finish.")
    assert bench.transcript.messages[2].content == (unspecified,)


@pytest.mark.rule(20)
@pytest.mark.rule(24)
async def test_a_hostile_reason_is_stored_and_sent_clean() -> None:
    """C01, C10: in the feedback, in what stopped the run, and in its error."""
    hostile = "\0\ud800" + "x" * 1_000_000
    bench = Bench([says("done")] * 2, completion=gate(no(hostile), no(hostile), attempts=2))
    outcome = await bench.run()
    assert bench.provider.complaints == []
    for said in (outcome.stopped_by, told(outcome)):
        assert said.startswith(failed(2, "\ufffd\ufffdx"))
        assert len(said.encode()) < 1100


# --- what is judged, and what is not --------------------------------------------------------


@pytest.mark.rule(24)
@pytest.mark.parametrize(
    ("said", "stored"),
    [
        (says("done", StopReason.END_TURN), StopReason.END_TURN),
        (says("done", StopReason.STOP_SEQUENCE), StopReason.STOP_SEQUENCE),
        (says("done", StopReason.MAX_TOKENS), StopReason.MAX_TOKENS),
        (says("no", StopReason.REFUSAL), StopReason.REFUSAL),
        (says("calls", StopReason.TOOL_USE), StopReason.END_TURN),
        (answer(usage=Usage(10, 1)), StopReason.END_TURN),
    ],
    ids=["end", "stop", "length", "refusal", "no calls", "silence"],
)
async def test_whatever_ends_a_run_as_done_is_judged(said: Answer, stored: StopReason) -> None:
    """With its stop reason if it passes; and if not, the conversation goes on from it."""
    outcome = await Bench([said], completion=gate(PASS)).run()
    assert (outcome.status, outcome.stop_reason) == (OutcomeStatus.DONE, stored)

    bench = Bench([said, says("now")], completion=gate(no("no tests"), PASS))
    assert (await bench.run()).status is OutcomeStatus.DONE
    assert bench.provider.complaints == []
    assert bench.provider.requests[1].messages[-1].content[-1] == NOT_YET


@pytest.mark.rule(14)
@pytest.mark.rule(15)
@pytest.mark.rule(24)
@pytest.mark.parametrize("stop", [StopReason.MAX_TOKENS, StopReason.REFUSAL])
async def test_calls_of_a_rejected_answer_that_was_cut_short_are_answered(stop: StopReason) -> None:
    """They never ran, and say so before the feedback: every call has its result."""
    judge, completion = verifier_and_gate(no("no tests"), PASS)
    cut = asks(CALL, ToolUseBlock("b", "get_time", raw_input='{"zo'), stop=stop)
    bench = Bench([cut, says("done")], completion=completion)
    assert (await bench.run()).status is OutcomeStatus.DONE
    assert bench.tools.calls == []
    results = [ToolResultBlock(id, CUT_SHORT, is_error=True) for id in "ab"]  # noqa: A001 - as of a block
    assert bench.transcript.messages[2].content == (*results, NOT_YET)
    assert bench.provider.complaints == []
    assert [len(result.tool_calls) for result in judge.asked] == [0, 2]
    assert all(call.is_error for call in judge.asked[1].tool_calls)


@pytest.mark.rule(24)
@pytest.mark.parametrize(
    ("last", "code"),
    [
        (failing(ProviderError("no", code="400")), ErrorCode.PROVIDER_ERROR),
        (failing(ContextExceeded("long", code="long")), ErrorCode.CONTEXT_EXCEEDED),
        (broken(text("do")), ErrorCode.PROVIDER_STREAM_BROKEN),
        (says("wait", StopReason.PAUSE_TURN), ErrorCode.UNSUPPORTED_STOP),
        (says("long", StopReason.CONTEXT_EXCEEDED), ErrorCode.CONTEXT_EXCEEDED),
        (asks(*[CALL] * 9), ErrorCode.PROVIDER_ERROR),
    ],
    ids=["refused", "too long", "broken", "paused", "cut", "too many calls"],
)
async def test_a_run_that_failed_is_not_judged(last: Answer, code: ErrorCode) -> None:
    """It is not done; what stopped it is named, with the verdict before, if there was one."""
    judge, completion = verifier_and_gate(no("no tests"), PASS)
    limits = LoopLimits(max_tool_calls=4, stream_retries=0)
    outcome = await Bench([last], limits=limits, completion=completion).run()
    assert ended(outcome) == (OutcomeStatus.ERROR, code, code.value)
    assert judge.asked == []

    outcome = await Bench([says("done"), last], limits=limits, completion=completion).run()
    both = f"{code.value}; {failed(1, 'no tests')}"
    assert ended(outcome) == (OutcomeStatus.ERROR, code, both)
    assert len(judge.asked) == 1
    assert outcome.iterations >= 1


@pytest.mark.rule(17)
@pytest.mark.rule(24)
async def test_a_run_at_its_cap_is_not_judged_and_not_done() -> None:
    """B13: whatever it had said before; the tools of the last turn still run."""
    judge, completion = verifier_and_gate(PASS)
    wordy = answer(TextBlock("All done!"), CALL, usage=Usage(10, 2))
    bench = Bench([wordy] * 2, limits=LoopLimits(max_iterations=2), completion=completion)
    outcome = await bench.run()
    assert ended(outcome) == (OutcomeStatus.INCOMPLETE, ErrorCode.ITERATION_CAP, "iteration_cap")
    assert judge.asked == []
    assert len(bench.tools.calls) == 2


@pytest.mark.rule(17)
@pytest.mark.rule(24)
@pytest.mark.parametrize(
    "script", [[says("done")], [says("done"), asks(CALL)]], ids=["at once", "later"]
)
async def test_a_cap_after_a_rejection_names_both(script: list[Answer]) -> None:
    """The cap counts the turns of all attempts, rejected answers too."""
    limits = LoopLimits(max_iterations=len(script))
    bench = Bench(script, limits=limits, completion=gate(no("no tests"), attempts=9))
    outcome = await bench.run()
    both = f"iteration_cap; {failed(1, 'no tests')}"
    assert ended(outcome) == (OutcomeStatus.INCOMPLETE, ErrorCode.ITERATION_CAP, both)
    assert bench.story()[-1] == f"{len(script) + 1} assistant text synthetic"
    assert outcome.iterations == bench.provider.calls == len(script)


@pytest.mark.rule(17)
@pytest.mark.rule(24)
@pytest.mark.parametrize("passes", [True, False])
async def test_the_answer_of_the_last_turn_allowed_is_judged(*, passes: bool) -> None:
    """It is within the cap; rejected for the last time, the gate is what stopped the run."""
    completion = gate(PASS if passes else no("no tests"), attempts=1)
    outcome = await Bench(
        [says("done")], limits=LoopLimits(max_iterations=1), completion=completion
    ).run()
    assert outcome.stopped_by == ("" if passes else failed(1, "no tests"))
