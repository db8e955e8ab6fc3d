"""How a run ends: one function for each way.

Rule: an outcome that is not done says what stopped it, and what the completion gate had said before.
Pure.
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
class RunTotals:
    """What a run has used when it ends.

    Attributes:
        turns: finished turns; with the last one, if that was completed.
        usage: tokens of all turns.
        rejections: what its completion gate had said.
        stop_reason: of the last answer; None if there was none.
    """

    turns: int
    usage: Usage
    rejections: Rejections
    stop_reason: StopReason | None = None


def done(totals: RunTotals, messages: tuple[NewMessage, ...] = ()) -> RunOutcome:
    """End as done; *messages* are those not stored yet."""
    return RunOutcome(
        OutcomeStatus.DONE,
        iterations=totals.turns,
        usage=totals.usage,
        messages=messages,
        stop_reason=totals.stop_reason,
    )


def failed(totals: RunTotals, error: RunError, messages: tuple[NewMessage, ...] = ()) -> RunOutcome:
    """End with *error*; *messages* are those not stored yet."""
    return _stopped(totals, OutcomeStatus.ERROR, error, error.code.value, messages)


def at_iteration_cap(
    totals: RunTotals, cap: int, run_id: UUID, unstored: tuple[NewMessage, ...]
) -> RunOutcome:
    """End after *cap* turns; a message after the *unstored* ones says so to people and the model."""
    text = f"Stopped before the work was done: this run reached its limit of {cap} iterations."
    explanation = NewMessage("assistant", (TextBlock(text),), run_id, totals.turns + 1, synthetic=True)
    code = ErrorCode.ITERATION_CAP
    error = RunError(code, text)
    return _stopped(totals, OutcomeStatus.INCOMPLETE, error, code.value, (*unstored, explanation))


def out_of_attempts(totals: RunTotals) -> RunOutcome:
    """End after the gate rejected the last attempt; its answer is stored."""
    error = RunError(ErrorCode.INCOMPLETE, str(totals.rejections))
    return _stopped(totals, OutcomeStatus.INCOMPLETE, error, "", ())


def _stopped(
    totals: RunTotals,
    status: OutcomeStatus,
    error: RunError,
    by: str,
    messages: tuple[NewMessage, ...],
) -> RunOutcome:
    reasons = [by, str(totals.rejections)]
    return RunOutcome(
        status,
        iterations=totals.turns,
        usage=totals.usage,
        messages=messages,
        stop_reason=totals.stop_reason,
        error=error,
        stopped_by="; ".join(filter(None, reasons)),
    )
