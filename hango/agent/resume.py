"""What of a run is stored already: where an execution goes on.

Pure: reads a transcript, and touches nothing.  Used by the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hango.agent.accumulator import Answer
from hango.domain import Message, Usage


def stored_turns(messages: Sequence[Message], run_id: UUID) -> set[tuple[int | None, str]]:
    """Return turn and role of the run's messages; turn 0 is its input."""
    return {(message.turn, message.role) for message in messages if message.run_id == run_id}


def stored_answer(messages: Sequence[Message], run_id: UUID, turn: int) -> Answer | None:
    """Return the answer of *turn* if it is stored whole: it is paid, and not bought again."""
    for message in reversed(messages):
        if (message.run_id, message.turn, message.role, message.partial) == (
            run_id,
            turn,
            "assistant",
            False,
        ):
            return Answer(message.content, message.stop_reason, message.usage or Usage())
    return None
