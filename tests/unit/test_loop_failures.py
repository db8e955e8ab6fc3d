"""When the provider fails or the execution is cut short: what is tried again, kept, and said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from hango.agent import LoopLimits, Provider
from hango.domain import (
    BlockStart,
    BlockStop,
    ErrorCode,
    InputDelta,
    OutcomeStatus,
    ProviderEvent,
    ProviderRequest,
    Retrying,
    RunError,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ToolUseBlock,
    TurnRestarted,
    TurnStarted,
    Usage,
    UsageUpdate,
)
from hango.errors import ContextExceeded, ProviderError, ProviderStreamBroken, UnsupportedStop
from hango.testing import Answer, failing
from hango.testing.scripts import Step

from support.loop_bench import Bench, asks, ended, says

CALL = ToolUseBlock("a", "get_time")
OVERLOADED = ProviderError("try later", code="overloaded_error", retryable=True)
INVALID = ProviderError("no such model", code="invalid_request_error")
LATE = RunError(ErrorCode.DEADLINE_EXCEEDED, "took too long")
SO = TextDelta(0, "so ")


@pytest.mark.rule(16)
@pytest.mark.parametrize(
    ("broken", "lost"),
    [
        pytest.param([OVERLOADED], 0, id="A13: an error first"),
        pytest.param([UsageUpdate(Usage(9)), OVERLOADED], 9, id="A13: only usage"),
        pytest.param([BlockStart(0, TextBlock("")), OVERLOADED], 0, id="A13: only an empty block"),
        pytest.param([], 0, id="A14: a stream that ends at once"),
    ],
)
async def test_an_error_before_any_content_is_retried_inside_the_turn(
    broken: list[Step], lost: int, autojump_clock: MockClock
) -> None:
    """Nothing of a failed try is left in the answer but its tokens, and watchers are told."""
    bench = Bench([*[Answer(tuple(broken))] * 3, says("hello")])
    start = autojump_clock.current_time()
    outcome = await bench.run()
    assert outcome.status is OutcomeStatus.DONE
    assert bench.story() == ["0 user text", "1 assistant text"]
    assert outcome.usage == Usage(10 + 3 * lost, 1)
    retries = bench.sink.of(Retrying)
    assert len(retries) == 3
    assert autojump_clock.current_time() - start >= sum(r.delay for r in retries)
    assert len(bench.sink.of(TurnStarted)) == 1
    assert {r.turn for r in bench.provider.requests} == {1}


@pytest.mark.rule(16)
async def test_retries_end_and_then_the_run_fails_naming_the_code(autojump_clock: MockClock) -> None:  # noqa: ARG001 - time passes
    """Four tries in all; the input is kept, so that the session shows what was asked."""
    bench = Bench([failing(OVERLOADED)] * 4)
    outcome = await bench.run()
    assert ended(outcome) == (OutcomeStatus.ERROR, ErrorCode.PROVIDER_ERROR, "provider_error")
    assert outcome.error is not None
    assert outcome.error.message == "overloaded_error: try later"
    assert bench.story() == ["0 user text"]
    assert outcome.iterations == 0


@pytest.mark.rule(16)
async def test_the_providers_wait_is_honoured(autojump_clock: MockClock) -> None:
    """A15: the delay is what the provider asked for."""
    error = ProviderError("slow down", code="429", retryable=True, retry_after=42.0)
    bench = Bench([failing(error), says("hello")])
    start = autojump_clock.current_time()
    await bench.run()
    assert autojump_clock.current_time() - start == 42.0
    assert [r.delay for r in bench.sink.of(Retrying)] == [42.0]


@pytest.mark.rule(16)
async def test_a_deadline_wakes_a_waiting_retry(autojump_clock: MockClock) -> None:
    """A15: no wait goes beyond the execution's deadline."""
    error = ProviderError("slow down", code="429", retryable=True, retry_after=42.0)
    bench = Bench([failing(error)] * 2)
    loop = bench.loop()
    start = autojump_clock.current_time()
    with trio.move_on_after(5) as scope:
        await bench.execute(loop)
    assert scope.cancelled_caught
    assert autojump_clock.current_time() - start == 5
    assert [r.delay for r in bench.sink.of(Retrying)] == [5]
    assert loop.failed(LATE).messages[0].turn == 0


@pytest.mark.rule(16)
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (INVALID, ErrorCode.PROVIDER_ERROR, "invalid_request_error: no such model"),
        (
            UnsupportedStop("pause_turn cannot be resumed", code="pause_turn", retryable=True),
            ErrorCode.UNSUPPORTED_STOP,
            "pause_turn cannot be resumed",
        ),
        (
            ContextExceeded("too long", code="context", retryable=True),
            ErrorCode.CONTEXT_EXCEEDED,
            "context: too long",
        ),
        (
            ProviderStreamBroken("silent", code="timeout"),
            ErrorCode.PROVIDER_STREAM_BROKEN,
            "timeout: silent",
        ),
    ],
)
async def test_an_error_that_will_not_pass_is_not_retried(
    error: ProviderError, code: ErrorCode, message: str
) -> None:
    """A17, B12: one call, and the run's error names the provider's code."""
    bench = Bench([failing(error)])
    outcome = await bench.run()
    assert outcome.error == RunError(code, message)
    assert outcome.stopped_by == code.value
    assert bench.sink.of(Retrying) == []


@pytest.mark.rule(16)
@pytest.mark.parametrize(
    ("ending", "code", "reason", "again"),
    [
        pytest.param([OVERLOADED], ErrorCode.PROVIDER_STREAM_BROKEN, "overloaded_error: ", 2, id="A13"),
        pytest.param([], ErrorCode.PROVIDER_STREAM_BROKEN, "stream_ended: ", 2, id="A14"),
        pytest.param(
            [ProviderStreamBroken("lost it", code="reset", retryable=True)],
            ErrorCode.PROVIDER_STREAM_BROKEN,
            "reset: lost it",
            2,
            id="reset",
        ),
        pytest.param([INVALID], ErrorCode.PROVIDER_STREAM_BROKEN, "invalid_request", 0, id="final"),
        pytest.param(
            [UnsupportedStop("unknown", code="brand_new_reason", retryable=True)],
            ErrorCode.UNSUPPORTED_STOP,
            "brand_new_reason: ",
            0,
            id="B12",
        ),
    ],
)
async def test_an_error_after_content_keeps_what_arrived(
    ending: list[Step],
    code: ErrorCode,
    reason: str,
    again: int,
    autojump_clock: MockClock,  # noqa: ARG001 - time passes
) -> None:
    """A13, A14, W-M16: of the last try; it is stored as partial, no tool runs, the cause is named."""
    whole: list[Step] = [BlockStart(1, CALL), BlockStop(1)]
    cut: list[Step] = [BlockStart(2, ToolUseBlock("b", "get_time")), InputDelta(2, '{"zo')]
    steps = [SO, *whole, *cut, UsageUpdate(Usage(5, 5)), *ending]
    first: list[Step] = [TextDelta(0, "lost"), UsageUpdate(Usage(100, 1)), OVERLOADED]
    tries = [*[Answer(tuple(first))] * again, Answer(tuple(steps))]
    bench = Bench([asks(CALL), *tries])
    outcome = await bench.run()
    assert ended(outcome) == (OutcomeStatus.ERROR, code, code.value)
    assert outcome.error is not None
    assert outcome.error.message.startswith(reason)
    assert [(r.turn, r.code) for r in bench.sink.of(TurnRestarted)] == [(2, "overloaded_error")] * again
    assert len(bench.tools.calls) == 1
    assert bench.story()[-1] == "2 assistant text,tool_use,tool_use partial"
    assert bench.transcript.messages[-1].content == (
        TextBlock("so "),
        CALL,
        ToolUseBlock("b", "get_time", raw_input='{"zo'),
    )
    assert (outcome.iterations, outcome.usage) == (1, Usage(15 + 100 * again, 7 + again))


@pytest.mark.rule(16)
@pytest.mark.parametrize("retries", [0, 1, 2, 5])
async def test_an_answer_that_broke_off_is_asked_for_again_in_its_turn(
    retries: int, autojump_clock: MockClock
) -> None:
    """W-M16: as often as the agent allows, beside the tries that bring nothing; lost tokens count."""
    cut = Answer((SO, BlockStart(1, CALL), UsageUpdate(Usage(5, 5))))
    nothing = failing(OVERLOADED)
    script = [nothing, *[cut, nothing] * min(retries, 2), *[cut] * (retries - 2), says("hello")]
    bench = Bench(script, limits=LoopLimits(stream_retries=retries))
    start = autojump_clock.current_time()
    outcome = await bench.run()
    assert outcome.status is OutcomeStatus.DONE
    assert bench.story() == ["0 user text", "1 assistant text"]
    assert bench.tools.calls == []
    assert bench.transcript.messages[-1].content == (TextBlock("hello"),)
    assert outcome.usage == Usage(10 + 5 * retries, 1 + 5 * retries)
    assert bench.transcript.messages[-1].usage == outcome.usage
    restarts = bench.sink.of(TurnRestarted)
    assert len(restarts) == retries
    assert autojump_clock.current_time() - start >= sum(r.delay for r in restarts)
    assert {request.turn for request in bench.provider.requests} == {1}


@pytest.mark.rule(16)
async def test_a_cancel_while_waiting_to_ask_again_keeps_what_had_arrived(
    autojump_clock: MockClock,  # noqa: ARG001 - time passes
) -> None:
    """W-M16: the part of the answer before the break is the partial of a run that ends there."""
    bench = Bench([Answer((SO,)), says("hello")])
    loop = bench.loop()
    with trio.move_on_after(0.1):
        await bench.execute(loop)
    assert [m.partial for m in loop.interrupted().messages] == [False, True]


@pytest.mark.rule(16)
async def test_tokens_that_nobody_told_are_unknown() -> None:
    """N15: null on the message, not 0; what is known adds up on the run."""
    silent = Answer(tuple(step for step in says("hello").steps if not isinstance(step, UsageUpdate)))
    bench = Bench([asks(CALL), silent])
    outcome = await bench.run()
    assert bench.transcript.messages[-1].usage is None
    assert outcome.usage == Usage(10, 2)


@pytest.mark.rule(15)
@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (StopReason.PAUSE_TURN, ErrorCode.UNSUPPORTED_STOP),
        (StopReason.CONTEXT_EXCEEDED, ErrorCode.CONTEXT_EXCEEDED),
    ],
)
async def test_a_stop_that_cannot_be_continued_from_fails_naming_it(
    stop: StopReason, code: ErrorCode
) -> None:
    """B12: never a success, never resumed, and calls that came with it do not run."""
    bench = Bench([Answer((SO, BlockStart(1, CALL), BlockStop(1), Stop(stop)))])
    outcome = await bench.run()
    assert ended(outcome) == (OutcomeStatus.ERROR, code, code.value)
    assert outcome.stop_reason is stop
    assert outcome.error is not None
    assert stop.value in outcome.error.message
    assert bench.tools.calls == []
    assert "partial" in bench.story()[-1]


@pytest.mark.rule(20)
async def test_the_text_of_an_error_is_clean_and_bounded() -> None:
    """C01, A17: a gateway's page of HTML does not end up in the run."""
    bench = Bench([failing(ProviderError("\0" + "é" * 100_000, code="502"))])
    outcome = await bench.run()
    assert outcome.error is not None
    assert outcome.error.message.startswith("502: \ufffdé")
    assert len(outcome.error.message.encode()) <= 1000


@pytest.mark.parametrize("after", [OVERLOADED, trio.Event()], ids=["error", "silence"])
async def test_what_comes_after_the_stop_is_not_waited_for(after: Step) -> None:
    """A14, A16: the answer is whole once the stop has arrived, whatever its connection does then."""
    bench = Bench([Answer((*says("hello").steps, after))])
    assert (await bench.run()).status is OutcomeStatus.DONE


@attrs.frozen
class Slammed:
    """A provider whose connections end in an error, whatever they carried."""

    inner: Provider
    name: str = "slammed"

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Ask the inner provider, and fail on the way out."""
        async with self.inner.stream(request) as events:
            yield events
        raise OVERLOADED


async def test_an_error_while_closing_does_not_spoil_a_whole_answer() -> None:
    """A14: a paid answer is not lost to how its connection was closed."""
    bench = Bench([says("hello")])
    loop = bench.loop()
    loop.provider = Slammed(bench.provider)
    assert (await bench.run(loop)).status is OutcomeStatus.DONE
    assert bench.sink.of(Retrying) == []


async def test_errors_that_are_nobodys_plan_fail_the_run() -> None:
    """R-F1: a broken provider plug-in fails the run at its border, where what arrived is at hand."""
    bench = Bench([Answer((SO, KeyError("choices")))])
    outcome = await bench.run()
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.PROVIDER_STREAM_BROKEN
    assert outcome.error.message == "unexpected_error: the provider raised KeyError: 'choices'"
    assert bench.story() == ["0 user text", "1 assistant text partial"]
    assert bench.provider.closed == 1
