"""One model call: the tries, and what the answer means for the run.

Rule: an answer that broke off is asked for again a few times, and an answer that is whole never.  What
the last try has brought stays in the accumulator, whatever happens.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from uuid import UUID

import trio

from hango.agent.accumulator import Accumulator, ModelAnswer
from hango.agent.ports import EventSink, Provider
from hango.agent.provider_border import as_provider_error, check_event, closing
from hango.codec import cut_text
from hango.domain import (
    ErrorCode,
    Message,
    ProviderRequest,
    Retrying,
    RunError,
    StopReason,
    Streamed,
    TurnRestarted,
    Usage,
)
from hango.errors import ContextExceeded, ProviderError, ProviderStreamBroken, UnsupportedStop
from hango.safe_errors import error_message, is_ctrl_c

# Seconds before the second try; doubled for each later one up to MAX_DELAY, then shortened by a random
# part of up to JITTER.  The model vendors' own clients use these numbers.
FIRST_DELAY = 0.5
MAX_DELAY = 8.0
JITTER = 0.25
# Seconds that a `Retry-After` may make a run wait: the run keeps its worker slot meanwhile.
MAX_RETRY_AFTER = 60.0
# Seconds; a longer `Retry-After` is a mistake, such as a point in time, and is ignored.
ABSURD_RETRY_AFTER = 86_400.0
# Events of a stream between two checkpoints.
CHECKPOINT_EVERY = 8
# Bytes of a run's error message.
MAX_ERROR = 1000


# --- the call -------------------------------------------------------------------------------


async def call_model(
    provider: Provider,
    request: ProviderRequest,
    *,
    run_id: UUID,
    events: EventSink,
    tries: int,
    stream_retries: int,
    new_accumulator: Callable[[Usage | None], Accumulator],
) -> ModelAnswer:
    """Return the provider's whole answer.

    At most *tries* calls may fail before anything has arrived, and *stream_retries* after that.
    *new_accumulator* is called before each with the tokens that those before it have cost; the caller
    keeps its result, and so has what arrived after a failure or a cancellation.

    Raises:
        ProviderError: the last try failed, or one that cannot or must not be repeated.
    """
    # Without this, a provider is called once even if the run is cancelled already.  A full checkpoint,
    # not `checkpoint_if_cancelled`, also notices a deadline that has just passed.
    await trio.lowlevel.checkpoint()
    breaks, lost = 0, None
    for failures in itertools.count(1):
        accumulator = new_accumulator(lost)
        try:
            await _stream_safely(provider, request, accumulator, run_id, events)
        except ProviderError as error:
            arrived, lost = not accumulator.empty, accumulator.usage
            breaks += arrived
            spent = breaks > stream_retries if arrived else failures - breaks >= tries
            if spent or not _may_be_retried(error):
                raise
            delay = retry_delay(failures, error.retry_after, _remaining(), random.random())  # noqa: S311 - jitter, not a secret
            kind = TurnRestarted if arrived else Retrying
            events.emit(kind(run_id, request.turn, error.code, delay))
        else:
            break
        await trio.sleep(delay)
    return accumulator.answer()


# Under this protection Ctrl-C is raised in the main task only; in any other task a KeyboardInterrupt is
# the provider's.
@trio.lowlevel.enable_ki_protection
async def _stream_safely(
    provider: Provider,
    request: ProviderRequest,
    accumulator: Accumulator,
    run_id: UUID,
    events: EventSink,
) -> None:
    """Fill *accumulator*; the border to the provider, which may be a plug-in's.

    Raises:
        ProviderError: for whatever the provider raised, `SystemExit` and the like included; only a
            cancellation from outside is raised as it is.
    """
    try:
        await _stream(provider, request, accumulator, run_id, events)
    except BaseException as error:  # the border to foreign code; a cancel is raised anew
        if is_ctrl_c(error):
            raise
        await trio.lowlevel.checkpoint_if_cancelled()
        failure = as_provider_error(error)
        # Once the answer is complete, an error while closing the connection does not matter.
        if not accumulator.finished:
            raise failure from None


async def _stream(
    provider: Provider,
    request: ProviderRequest,
    accumulator: Accumulator,
    run_id: UUID,
    events: EventSink,
) -> None:
    async with provider.stream(request) as stream, closing(stream):
        number = 0
        async for event in stream:
            check_event(event)
            accumulator.push(event)
            events.emit(Streamed(run_id, request.turn, event))
            if accumulator.finished:
                break
            number += 1
            if number % CHECKPOINT_EVERY == 0:  # a provider may yield without ever waiting
                await trio.lowlevel.checkpoint()
    if not accumulator.finished:
        message = "the stream ended before the answer did"
        raise ProviderStreamBroken(message, code="stream_ended", retryable=True)


def _may_be_retried(error: ProviderError) -> bool:
    return error.retryable and not isinstance(error, UnsupportedStop | ContextExceeded)


def _remaining() -> float:
    """Return the seconds until this execution's deadline; infinite without one."""
    return trio.current_effective_deadline() - trio.current_time()


def retry_delay(failures: int, retry_after: float | None, remaining: float, jitter: float) -> float:
    """Return the seconds to wait before the next try; never negative, never beyond *remaining*.

    Args:
        failures: tries that have failed, from 1.
        retry_after: seconds the provider asked for; an absurd value counts as None.
        remaining: seconds until the run's deadline.
        jitter: a random number from 0 to 1.
    """
    if retry_after is not None and 0 < retry_after < ABSURD_RETRY_AFTER:
        delay = min(retry_after, MAX_RETRY_AFTER)
    else:
        doublings = min(failures - 1, 10)  # MAX_DELAY is reached long before; keeps the power small
        delay = min(FIRST_DELAY * 2**doublings, MAX_DELAY) * (1 - JITTER * jitter)
    return max(min(delay, remaining), 0.0)


def run_error(error: ProviderError, *, arrived: bool) -> RunError:
    """Return the run's error for *error*; *arrived* says whether part of the answer had come."""
    match error:
        case UnsupportedStop():
            code = ErrorCode.UNSUPPORTED_STOP
        case ContextExceeded():
            code = ErrorCode.CONTEXT_EXCEEDED
        case ProviderError() if arrived or isinstance(error, ProviderStreamBroken):
            code = ErrorCode.PROVIDER_STREAM_BROKEN
        case _:
            code = ErrorCode.PROVIDER_ERROR
    text = error_message(error)
    named = error.code in text  # not named twice
    return RunError(code, cut_text(text if named else f"{error.code}: {text}", MAX_ERROR))


# --- the answer -----------------------------------------------------------------------------


def stored_answer(messages: Sequence[Message], run_id: UUID, turn: int) -> ModelAnswer | None:
    """Return the whole answer of *turn* if it is stored: it is not requested again."""
    wanted = (run_id, turn, "assistant", False)
    for message in reversed(messages):
        if (message.run_id, message.turn, message.role, message.partial) == wanted:
            return ModelAnswer(message.content, message.stop_reason, message.usage)
    return None


def runs_tools(answer: ModelAnswer) -> bool:
    """Return whether the answer's tools run: its content decides, not its stop reason (rule 15)."""
    cut_short = answer.stop_reason in (StopReason.MAX_TOKENS, StopReason.REFUSAL)
    return bool(answer.calls) and not cut_short


def stop_reason(answer: ModelAnswer) -> StopReason:
    """Return the stop reason that agrees with the content of a whole answer."""
    if runs_tools(answer):
        return StopReason.TOOL_USE
    if answer.stop_reason in (None, StopReason.TOOL_USE):
        return StopReason.END_TURN
    return answer.stop_reason


def unusable(answer: ModelAnswer, max_calls: int) -> RunError | None:
    """Return why a run cannot go on from a whole answer; None if it can."""
    if answer.stop_reason is StopReason.PAUSE_TURN:
        message = "pause_turn: the model paused its turn, and hango cannot resume it"
        return RunError(ErrorCode.UNSUPPORTED_STOP, message)
    if answer.stop_reason is StopReason.CONTEXT_EXCEEDED:
        message = "context_exceeded: the conversation does not fit the model's context window"
        return RunError(ErrorCode.CONTEXT_EXCEEDED, message)
    if answer.refused_calls:
        requested = max_calls + answer.refused_calls
        message = f"too_many_tool_calls: {requested} in one turn; at most {max_calls} are allowed"
        return RunError(ErrorCode.PROVIDER_ERROR, message)
    return None
