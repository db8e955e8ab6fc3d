"""Gates that fail, and gates that meddle: the run ends, and its transcript stays what it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from hango import Completion, RunResult
from hango.domain import ErrorCode, OutcomeStatus, StopReason, ToolUseBlock
from hango.testing import Answer

from support.gates import failed, no
from support.loop_bench import Bench, asks, ended, says

CALL = ToolUseBlock("a", "get_time")


async def raises(_: RunResult) -> tuple[bool, str]:
    """Fail to judge."""
    raise LookupError("no list")


@pytest.mark.rule(14)
@pytest.mark.rule(24)
@pytest.mark.parametrize(
    ("verify", "message"),
    [
        (raises, "LookupError: no list"),
        (lambda _: True, "a verifier must return (bool, str), but it returned bool"),
        (lambda _: None, "a verifier must return (bool, str), but it returned NoneType"),
    ],
)
@pytest.mark.parametrize("last", [says("done"), asks(CALL, stop=StopReason.MAX_TOKENS)])
async def test_a_verifier_that_fails_ends_the_run_as_an_error(
    verify: Callable[[RunResult], tuple[bool, str]], message: str, last: Answer
) -> None:
    """Neither a pass nor a rejection; the answer is stored, and the session can go on."""
    bench = Bench([last], completion=Completion(verify, 3))
    outcome = await bench.run()
    code = ErrorCode.VERIFIER_ERROR
    assert ended(outcome) == (OutcomeStatus.ERROR, code, code.value)
    assert outcome.error is not None
    assert outcome.error.message == message
    assert (outcome.iterations, outcome.messages, bench.provider.calls) == (1, (), 1)

    after = Bench([says("hello")])
    after.transcript._messages.extend(bench.transcript.messages)
    assert (await after.run()).status is OutcomeStatus.DONE
    assert after.provider.complaints == []


@pytest.mark.rule(24)
async def test_a_verifier_that_fails_later_names_the_verdict_before() -> None:
    """The error, and what had been found."""

    def verify(result: RunResult) -> tuple[bool, str]:
        if result.turns > 1:
            raise LookupError
        return no("no tests")

    outcome = await Bench([says("done")] * 2, completion=Completion(verify, 3)).run()
    both = f"verifier_error; {failed(1, 'no tests')}"
    assert ended(outcome) == (OutcomeStatus.ERROR, ErrorCode.VERIFIER_ERROR, both)


@pytest.mark.rule(24)
async def test_a_verifier_cannot_change_what_is_stored() -> None:
    """Nor what the next one is asked about."""
    seen: list[object] = []

    async def meddle(result: RunResult) -> tuple[bool, str]:
        arguments = result.tool_calls[0].args
        seen.append(dict(arguments))
        arguments.clear()  # type: ignore[attr-defined]  # the misbehaviour under test
        await trio.lowlevel.checkpoint()
        return len(seen) > 1, "again"

    call = ToolUseBlock("a", "get_time", {"zone": "UTC"})
    bench = Bench([asks(call), says("done"), says("done")], completion=Completion(meddle, 3))
    await bench.run()
    assert seen == [{"zone": "UTC"}] * 2
    assert bench.transcript.messages[1].content == (call,)
    assert bench.provider.requests[2].messages[1].content == (call,)
