"""How a run ends: one outcome for each way.

Rule: nothing stops silently; an outcome that is not done names what stopped it, and the verdicts
before, if a completion gate had judged the run.  Pure.  Used by the loop.
"""

from __future__ import annotations

from uuid import UUID

import attrs

from hango.agent.completion import Rejections
from hango.domain import (
    ErrorCode,
    NewMessage,
    OutcomeStatus,
    RunError,
    RunOutcome,
    StopReason,
    TextBlock,
    Usage,
)


@attrs.frozen
class Standing:
    """Where a run stands when it ends.

    Attributes:
        turns: those that are finished; with the one that ends it, if that came to its end.
        usage: of the whole run.
        rejections: what its gate had said before.
        stop_reason: of the last answer, if one had come.
    """

    turns: int
    usage: Usage
    rejections: Rejections
    stop_reason: StopReason | None = None


def done(standing: Standing, messages: tuple[NewMessage, ...] = ()) -> RunOutcome:
    """End as done; *messages* are those not stored yet."""
    return RunOutcome(
        OutcomeStatus.DONE,
        iterations=standing.turns,
        usage=standing.usage,
        messages=messages,
        stop_reason=standing.stop_reason,
    )


def failed(standing: Standing, error: RunError, messages: tuple[NewMessage, ...] = ()) -> RunOutcome:
    """End with *error*; *messages* are those not stored yet."""
    return _stopped(standing, OutcomeStatus.ERROR, error, error.code.value, messages)


def capped(standing: Standing, bound: int, run_id: UUID, before: tuple[NewMessage, ...]) -> RunOutcome:
    """End at the cap of *bound* iterations, with a last message that says so, to people and the model.

    It goes after *before*, messages not stored yet.
    """
    text = f"Stopped before the work was done: this run reached its limit of {bound} iterations."
    explained = NewMessage("assistant", (TextBlock(text),), run_id, standing.turns + 1, synthetic=True)
    code = ErrorCode.ITERATION_CAP
    error = RunError(code, text)
    return _stopped(standing, OutcomeStatus.INCOMPLETE, error, code.value, (*before, explained))


def exhausted(standing: Standing) -> RunOutcome:
    """End when the last attempt was rejected, too; its answer is stored."""
    reason = str(standing.rejections)
    error = RunError(ErrorCode.INCOMPLETE, reason)
    return _stopped(standing, OutcomeStatus.INCOMPLETE, error, "", ())


def _stopped(
    standing: Standing,
    status: OutcomeStatus,
    error: RunError,
    by: str,
    messages: tuple[NewMessage, ...],
) -> RunOutcome:
    named = [by, str(standing.rejections)]
    return RunOutcome(
        status,
        iterations=standing.turns,
        usage=standing.usage,
        messages=messages,
        stop_reason=standing.stop_reason,
        error=error,
        stopped_by="; ".join(filter(None, named)),
    )
