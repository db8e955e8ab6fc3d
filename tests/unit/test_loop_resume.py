"""Resuming: whoever takes a run over repeats nothing that is stored and buys nothing twice."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.agent import LoopLimits
from hango.domain import (
    ErrorCode,
    Interrupted,
    NewMessage,
    OutcomeStatus,
    Result,
    StopReason,
    TextBlock,
    ToolContext,
    ToolUseBlock,
    Usage,
)
from hango.testing import Answer, hanging, text

from support.checked_transcript import CheckedTranscript
from support.loop_bench import HI, Bench, asks, says

CALL = ToolUseBlock("a", "get_time")
CALLS = [asks(CALL), asks(ToolUseBlock("b", "get_time")), says("done")]


async def interrupted(bench: Bench) -> None:
    """Start the run and cut it short when nothing moves any more, as a process that ends would."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.execute)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def hang(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
    """Never come to a result."""
    await trio.sleep_forever()


@pytest.mark.rule(8)
@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_run_goes_on_after_its_last_finished_turn(turns: int) -> None:
    """Whenever an execution ends, the next one makes the history that one execution would have."""
    whole = Bench(CALLS)
    expected = await whole.run()

    first = Bench([*CALLS[:turns], hanging(text("lost"))])
    await interrupted(first)
    assert first.transcript.resume_turn == turns
    second = Bench(CALLS[turns:], transcript=first.transcript)
    outcome = await second.run()

    assert second.story() == whole.story()
    assert len(second.tools.calls) == 2 - turns
    assert (outcome.iterations, outcome.usage) == (expected.iterations, expected.usage)


@pytest.mark.rule(8)
async def test_a_stored_answer_is_kept_and_only_its_tools_run_again() -> None:
    """A paid answer is not bought twice, and its tokens are counted once, at its boundary."""
    first = Bench([asks(CALL)], hang)
    await interrupted(first)
    assert first.transcript.writes == ["append"]
    assert first.transcript.usage == Usage()

    second = Bench([says("done")], transcript=first.transcript)
    outcome = await second.run()
    assert second.transcript.writes == ["append", "end_turn"]
    assert [(c.turn, c.ordinal, c.call_id) for c in second.tools.calls] == [(1, 0, "a")]
    assert second.tools.calls[0].idempotency_key == first.tools.calls[0].idempotency_key
    assert second.transcript.usage == Usage(10, 2)
    assert (outcome.iterations, outcome.usage) == (2, Usage(20, 3))
    assert [r.turn for r in second.provider.requests] == [2]


@pytest.mark.rule(8)
async def test_a_stored_final_answer_ends_the_run_as_it_is() -> None:
    """Nobody is asked, and there is nothing more to store."""
    bench = Bench()
    bench.transcript.store(
        [
            NewMessage("user", HI, bench.run_id, 0),
            NewMessage(
                "assistant",
                (TextBlock("done"),),
                bench.run_id,
                1,
                stop_reason=StopReason.END_TURN,
                usage=Usage(7, 7),
            ),
        ]
    )
    outcome = await bench.run()
    assert (outcome.status, outcome.iterations, outcome.usage) == (OutcomeStatus.DONE, 1, Usage(7, 7))
    assert (outcome.messages, outcome.stop_reason) == ((), StopReason.END_TURN)


@pytest.mark.rule(15)
async def test_a_stored_answer_cut_off_at_its_length_runs_no_tool_when_resumed() -> None:
    """What holds for a fresh answer holds for a kept one."""
    bench = Bench()
    bench.transcript.store(
        [
            NewMessage("user", HI, bench.run_id, 0),
            NewMessage("assistant", (CALL,), bench.run_id, 1, stop_reason=StopReason.MAX_TOKENS),
        ]
    )
    outcome = await bench.run()
    assert (outcome.status, outcome.stop_reason) == (OutcomeStatus.DONE, StopReason.MAX_TOKENS)
    assert bench.tools.calls == []


@pytest.mark.rule(17)
async def test_a_run_resumed_at_its_cap_asks_nobody() -> None:
    """Rule 10: the cap belongs to the run; its finished turns count whoever made them."""
    first = Bench([asks(CALL)], limits=LoopLimits(max_iterations=1))
    first.transcript.handing_over = True
    assert await first.execute() == Interrupted()

    second = Bench(transcript=first.transcript, limits=first.limits)
    outcome = await second.run()
    assert (outcome.iterations, outcome.usage) == (1, Usage(10, 2))
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.ITERATION_CAP
    assert second.story()[-1] == "2 assistant text synthetic"


@pytest.mark.rule(17)
async def test_a_cap_lowered_meanwhile_lets_the_paid_turn_finish() -> None:
    """The open turn's answer is stored, so its tools run before the cap is looked at."""
    bench = Bench(limits=LoopLimits(max_iterations=1))
    bench.transcript.resume_turn = 4
    bench.transcript.store(
        [
            NewMessage("user", HI, bench.run_id, 0),
            NewMessage("assistant", (CALL,), bench.run_id, 5, stop_reason=StopReason.TOOL_USE),
        ]
    )
    outcome = await bench.run()
    assert bench.story()[2:] == ["5 user tool_result", "6 assistant text synthetic"]
    assert outcome.iterations == 5


@pytest.mark.rule(7)
@pytest.mark.parametrize("script", [hanging(), hanging(text("lost"))], ids=["nothing", "text"])
async def test_the_input_is_stored_once_however_often_a_run_starts(script: Answer) -> None:
    """A run cut short in its first turn has stored nothing; the next execution stores the input."""
    transcript = CheckedTranscript()
    for _ in range(3):
        await interrupted(Bench([script], transcript=transcript))
        assert transcript.messages == ()
    bench = Bench([says("done")], transcript=transcript)
    await bench.run()
    assert bench.story() == ["0 user text", "1 assistant text"]


@pytest.mark.rule(14)
async def test_the_own_open_turn_is_never_repaired() -> None:
    """A resumed run with dangling calls of its own runs them; no made-up result is stored."""
    bench = Bench([says("done")])
    bench.transcript.store(
        [NewMessage("user", HI, bench.run_id, 0), NewMessage("assistant", (CALL,), bench.run_id, 1)]
    )
    await bench.run()
    assert bench.transcript.writes == ["end_turn"]
    assert "synthetic" not in " ".join(bench.story())
