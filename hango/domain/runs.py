"""Runs: their states, their errors, and the outcome of an execution.

Rule: the state of a run changes only along `TRANSITIONS`; the guards of the SQL say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import attrs

from hango.domain.messages import Block, NewMessage, StopReason, Usage


class RunState(StrEnum):
    """The state of a run; see `TRANSITIONS`."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return not TRANSITIONS[self]


TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    # claim; cancel of one that nobody has started
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    # release and reclaim; the three ends
    RunState.RUNNING: frozenset(
        {RunState.QUEUED, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}
    ),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}


class ErrorCode(StrEnum):
    """Why a run failed; stable, for programs."""

    ITERATION_CAP = "iteration_cap"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    PROVIDER_ERROR = "provider_error"
    PROVIDER_STREAM_BROKEN = "provider_stream_broken"
    UNSUPPORTED_STOP = "unsupported_stop"
    CONTEXT_EXCEEDED = "context_exceeded"
    CREATOR_INACTIVE = "creator_inactive"
    CREATOR_FORBIDDEN = "creator_forbidden"
    AGENT_MISSING = "agent_missing"
    INCOMPLETE = "incomplete"
    VERIFIER_ERROR = "verifier_error"
    CRASH_LOOP = "crash_loop"
    INTERNAL = "internal"


@attrs.frozen
class RunError:
    """Why a run failed: a stable code, and a sentence for people, bounded and without secrets."""

    code: ErrorCode
    message: str


@attrs.frozen
class Run:
    """One durable request to a session.

    Attributes:
        session_seq: its place in its session's line (1 is the first ever).
        attempts: which attempt it is in, from 1: one more than its completion gate has rejected.
        claim_epoch: raised by every claim; with the owner it is the fence.
        resume_turn: turns finished and stored; the next execution starts after them.
        reclaims: leases lapsed in a row without a finished turn.
        trace_id: 32 hex digits, drawn at creation; `span_id` is the latest execution's root.
    """

    id: UUID
    tenant_id: UUID
    session_id: UUID
    agent_id: UUID
    created_by: UUID
    lane: str
    session_seq: int
    state: RunState
    input: tuple[Block, ...]
    claim_epoch: int
    resume_turn: int
    iterations: int
    attempts: int
    reclaims: int
    usage: Usage
    error: RunError | None
    stop_reason: StopReason | None
    stopped_by: str
    final_message_id: UUID | None
    trace_id: str
    span_id: str | None
    owner_id: UUID | None
    last_owner_id: UUID | None
    cancel_requested_at: datetime | None
    not_before: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    created_at: datetime
    waiting_on: str | None


class OutcomeStatus(StrEnum):
    """How an execution ended, in the words of in-process runs."""

    DONE = "done"
    INCOMPLETE = "incomplete"
    ERROR = "error"


@attrs.frozen
class RunOutcome:
    """The outcome of an execution: all that its terminal write stores.

    Attributes:
        messages: still to be stored, oldest first: the run's input if no turn was stored yet, then
            the final (or partial, or explaining) message; may be empty.
        usage, iterations: of the whole run, this execution's part included.
        stopped_by: what stopped it; empty exactly when done.
    """

    status: OutcomeStatus
    iterations: int
    usage: Usage
    messages: tuple[NewMessage, ...] = ()
    stop_reason: StopReason | None = None
    error: RunError | None = None
    stopped_by: str = ""

    @property
    def state(self) -> RunState:
        """The state the run ends in."""
        return RunState.SUCCEEDED if self.status is OutcomeStatus.DONE else RunState.FAILED


@attrs.frozen
class TurnEnd:
    """What is stored at the end of a turn.

    Attributes:
        turn: the turn that is finished, from 1; the run's `resume_turn` becomes this.
        message: the turn's one user message: its tool results, or why its answer did not verify.
        usage: of the whole run, this turn included.
        rejected: a completion gate found the run not done; the next turn begins another attempt.
    """

    turn: int
    message: NewMessage
    usage: Usage
    rejected: bool = False


@attrs.frozen
class Interrupted:
    """The execution was interrupted by a cancel or a drain; the run's row says which.

    Attributes:
        messages: what had arrived, as partial; stored only if the run ends here (cancelled).
    """

    messages: tuple[NewMessage, ...] = ()
