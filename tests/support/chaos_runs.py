"""Runs as they are stored, for tests of the checks of `hango chaos`."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from hango.domain import Run, RunState, StopReason, TextBlock, Usage

SESSION = UUID(int=7)


def at(second: float) -> datetime:
    """Return that second."""
    return datetime.fromtimestamp(second, UTC)


def run_of(number: int, script: str, turns: int, end: float) -> Run:
    """Return a run that has succeeded."""
    some = UUID(int=number)
    return Run(
        id=some,
        tenant_id=some,
        session_id=SESSION,
        agent_id=some,
        created_by=some,
        lane="main",
        session_seq=number,
        state=RunState.SUCCEEDED,
        input=(TextBlock(script),),
        claim_epoch=1,
        resume_turn=turns,
        iterations=turns,
        attempts=1,
        reclaims=0,
        usage=Usage(),
        error=None,
        stop_reason=StopReason.END_TURN,
        stopped_by="",
        final_message_id=None,
        trace_id="a" * 32,
        span_id=None,
        owner_id=None,
        last_owner_id=some,
        cancel_requested_at=None,
        not_before=None,
        started_at=at(0),
        finished_at=at(end),
        created_at=at(0),
        waiting_on=None,
    )
