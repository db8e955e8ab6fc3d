"""Asks the provider for one answer, trying again while nothing has arrived, and reads what it says.

Rule: an answer of which any content has arrived is never asked for again; what arrived stays in the
accumulator, whatever happens.  Used by the loop.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from uuid import UUID

import trio

from hango.agent.accumulator import Accumulator, Answer
from hango.agent.ports import EventSink, Provider
from hango.codec import cut_text
from hango.domain import ErrorCode, ProviderRequest, Retrying, RunError, StopReason, Streamed
from hango.errors import ContextExceeded, ProviderError, ProviderStreamBroken, UnsupportedStop

# Seconds before the second try, doubling up to the longest, less up to a quarter: what the model
# vendors' own clients do.
FIRST_DELAY = 0.5
LONGEST_DELAY = 8.0
JITTER = 0.25
# Seconds a provider may make us wait: it holds a slot all the while.
LONGEST_RETRY_AFTER = 60.0
# Seconds; more is no wait but a mistake, such as a point in time.
ABSURD_RETRY_AFTER = 86_400.0
# Bytes of a run's error message.
MAX_ERROR = 1000


async def call_model(
    provider: Provider,
    request: ProviderRequest,
    *,
    run_id: UUID,
    emit: EventSink,
    tries: int,
    begin: Callable[[], Accumulator],
) -> Answer:
    """Return the provider's whole answer, after at most *tries* calls.

    *begin* makes the accumulator of each; it stays with the caller, so that what had arrived is at
    hand after a failure or a cancellation.

    Raises:
        ProviderError: the last try failed, or one that cannot or must not be repeated.
    """
    # A provider is asked before its first checkpoint, even where all is cancelled.  A whole one, not
    # `checkpoint_if_cancelled`: a deadline that has passed is noticed between two steps.
    await trio.lowlevel.checkpoint()
    for failures in itertools.count(1):
        accumulator = begin()
        try:
            await _stream(provider, request, accumulator, run_id, emit)
        except ProviderError as error:
            if failures >= tries or not accumulator.empty or not _passing(error):
                raise
            delay = retry_delay(failures, error.retry_after, _remaining(), random.random())  # noqa: S311 - jitter, not a secret
            emit.emit(Retrying(run_id, request.turn, error.code, delay))
        else:
            break
        await trio.sleep(delay)
    return accumulator.answer()


async def _stream(
    provider: Provider,
    request: ProviderRequest,
    accumulator: Accumulator,
    run_id: UUID,
    emit: EventSink,
) -> None:
    try:
        async with provider.stream(request) as events:
            async for event in events:
                accumulator.push(event)
                emit.emit(Streamed(run_id, request.turn, event))
                if accumulator.finished:
                    break
    except ProviderError:
        # Once the answer is whole, how its connection ends does not matter.
        if not accumulator.finished:
            raise
    if not accumulator.finished:
        message = "the stream ended before the answer did"
        raise ProviderStreamBroken(message, code="stream_ended", retryable=True)


def _passing(error: ProviderError) -> bool:
    """Return whether the same request may fare better later."""
    return error.retryable and not isinstance(error, UnsupportedStop | ContextExceeded)


def _remaining() -> float:
    """Return the seconds until this execution is cut short; infinite when nothing bounds it."""
    return trio.current_effective_deadline() - trio.current_time()


def retry_delay(failures: int, retry_after: float | None, remaining: float, jitter: float) -> float:
    """Return the seconds to wait before the next try; never negative, never beyond *remaining*.

    *failures* counts the tries that have failed, from 1.  *retry_after* is what the provider asked
    for, in seconds; nonsense counts as not asked.  *remaining* is until the run's deadline, in
    seconds.  *jitter* is drawn by the caller, from 0 to 1.
    """
    if retry_after is not None and 0 < retry_after < ABSURD_RETRY_AFTER:
        delay = min(retry_after, LONGEST_RETRY_AFTER)
    else:
        doublings = min(failures - 1, 10)  # far past the longest; keeps the power small
        delay = min(FIRST_DELAY * 2**doublings, LONGEST_DELAY) * (1 - JITTER * jitter)
    return max(min(delay, remaining), 0.0)


def run_error(error: ProviderError, *, arrived: bool) -> RunError:
    """Return what *error* makes a run fail with; *arrived* tells whether content had come."""
    match error:
        case UnsupportedStop():
            code = ErrorCode.UNSUPPORTED_STOP
        case ContextExceeded():
            code = ErrorCode.CONTEXT_EXCEEDED
        case ProviderError() if arrived or isinstance(error, ProviderStreamBroken):
            code = ErrorCode.PROVIDER_STREAM_BROKEN
        case _:
            code = ErrorCode.PROVIDER_ERROR
    return RunError(code, cut_text(f"{error.code}: {error}", MAX_ERROR))


# --- what an answer means -------------------------------------------------------------------


def goes_on(answer: Answer) -> bool:
    """Return whether the answer's tools run: its content decides, not its label (rule 15)."""
    cut_short = answer.stop_reason in (StopReason.MAX_TOKENS, StopReason.REFUSAL)
    return bool(answer.calls) and not cut_short


def stop_reason(answer: Answer) -> StopReason:
    """Return the stop reason that the content of a whole answer bears out, whatever the label."""
    if goes_on(answer):
        return StopReason.TOOL_USE
    if answer.stop_reason in (None, StopReason.TOOL_USE):
        return StopReason.END_TURN
    return answer.stop_reason


def unusable(answer: Answer, max_calls: int) -> RunError | None:
    """Return why a run cannot work with a whole answer; None when it can."""
    if answer.stop_reason is StopReason.PAUSE_TURN:
        message = "pause_turn: the model paused its turn, and that cannot be resumed"
        return RunError(ErrorCode.UNSUPPORTED_STOP, message)
    if answer.stop_reason is StopReason.CONTEXT_EXCEEDED:
        message = "context_exceeded: the conversation does not fit the model's context window"
        return RunError(ErrorCode.CONTEXT_EXCEEDED, message)
    if answer.refused_calls:
        asked = max_calls + answer.refused_calls
        message = f"too_many_tool_calls: {asked} in one turn; at most {max_calls} are allowed"
        return RunError(ErrorCode.PROVIDER_ERROR, message)
    return None
