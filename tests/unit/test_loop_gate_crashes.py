"""Runs with a gate come to the same wherever they crash, and however often."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio

from hango import Completion, RunResult, Verdict
from hango.domain import Message, OutcomeStatus, Result, RunOutcome, ToolContext, ToolUseBlock

from support.checked_transcript import CheckedTranscript
from support.gates import PASS, no
from support.loop_bench import Bench, asks, says

CALL = ToolUseBlock("a", "get_time")
SCRIPT = [asks(CALL), says("one"), asks(CALL), asks(CALL), says("two"), says("three")]
VERDICTS = {2: no("first"), 5: no("second"), 6: PASS}


@attrs.define(eq=False)
class Crashes:
    """Ends an execution at the *left*-th thing that happens in it: a write, a call, a verdict."""

    left: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    asked: list[RunResult] = attrs.field(factory=list)

    def happens(self, _: object = None) -> None:
        """Count."""
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()

    async def body(self, call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG002 - a tool's body
        """Do what a tool does."""
        self.happens()
        await trio.lowlevel.checkpoint()
        return Result("noon")

    async def verify(self, result: RunResult) -> Verdict:
        """Judge by the number of turns, as whoever judges the same run would."""
        self.happens()
        await trio.lowlevel.checkpoint()
        self.asked.append(result)
        return VERDICTS[result.turns]

    async def execute(self, transcript: CheckedTranscript) -> RunOutcome | None:
        """Execute the run from where it stands; None when that crashed."""
        bought = sum(message.role == "assistant" for message in transcript.messages)
        bench = Bench(
            SCRIPT[bought:], self.body, transcript=transcript, completion=Completion(self.verify, 3)
        )
        transcript.after_write = self.happens
        with self.scope:
            return await bench.run()
        return None


async def crashing(*times: int) -> tuple[RunOutcome, CheckedTranscript, RunResult]:
    """Run to the end, with crashes at *times*; return what it came to, and its last result."""
    transcript, outcome = CheckedTranscript(), None
    crashes = [Crashes(left) for left in (*times, -1)]
    for each in crashes:
        outcome = outcome or await each.execute(transcript)
    assert outcome is not None
    return outcome, transcript, [result for each in crashes for result in each.asked][-1]


def shown(messages: Sequence[Message]) -> list[object]:
    """Return what of *messages* is the same in every run of the script."""
    return [
        (m.seq, m.turn, m.role, m.content, m.usage, m.stop_reason, m.partial, m.synthetic)
        for m in messages
    ]


def compared(result: RunResult) -> tuple[object, ...]:
    """Return what of *result* is the same in every run of the script."""
    return (result.text, result.tool_calls, result.usage, result.turns, shown(result.messages))


@pytest.mark.rule(8)
@pytest.mark.rule(10)
@pytest.mark.rule(24)
async def test_wherever_it_crashes_a_run_comes_to_the_same() -> None:
    """History, outcome, and what its gate is asked about at the end: as if nothing had happened."""
    whole = Crashes(-1)
    await whole.execute(CheckedTranscript())
    happened = -1 - whole.left
    assert happened == 6 + 5 + 3 + 3  # answers, boundaries, calls, verdicts

    expected, transcript, asked = await crashing()
    assert (expected.status, expected.iterations) == (OutcomeStatus.DONE, 6)
    for first in range(1, happened + 1):
        for second in range(1, happened + 2 - first):
            outcome, its_transcript, its_asked = await crashing(first, second)
            assert outcome == expected, (first, second)
            assert shown(its_transcript.messages) == shown(transcript.messages), (first, second)
            assert compared(its_asked) == compared(asked), (first, second)
