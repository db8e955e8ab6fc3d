"""Guardrails: functions that permit or deny a tool call before it starts.

Rule: a call starts only if every guardrail permits it.  The first denial wins, later guardrails are not
asked, and a guardrail that raises or returns anything unexpected denies.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs

from hango.agent.callbacks import Raised, TenantThreads, call_user_function, exact_str, name_of
from hango.codec import cut_text
from hango.domain import JsonObject, ToolUseBlock
from hango.safe_errors import describe, format_frames

ALLOW = "allow"
MAX_REASON = 1000  # bytes of a denial's reason, as the model gets it

_log = logging.getLogger(__name__)


@attrs.frozen
class BeforeToolEvent:
    """A tool call that is about to start.

    Attributes:
        name: of the tool, as the model wrote it; there may be no such tool.
        args: as the model wrote them, not yet checked against the tool's schema; a copy of the
            guardrail's own, so changing it changes nothing.
        id: of the call, as in the transcript.
        turn: of the run, from 1.
    """

    name: str
    args: JsonObject
    id: str
    turn: int


Guardrail: TypeAlias = Callable[[BeforeToolEvent], str | Awaitable[str | None] | None]
"""Permits a call by returning None, ``""`` or ``"allow"``; any other text denies it, and is the reason.

Async or sync; a sync one runs in a thread.  Calls of one turn are asked about at the same time, and
again when the turn is replayed after a crash.
"""


async def denial(
    guardrails: Sequence[Guardrail], call: ToolUseBlock, turn: int, threads: TenantThreads
) -> str | None:
    """Return why *call* is denied, cleaned and bounded; None if every guardrail permits it.

    The guardrails are asked in order; sync ones run in *threads*.  Cancelled midway, nothing is
    returned.
    """
    for guardrail in guardrails:
        event = BeforeToolEvent(call.name, copy.deepcopy(call.input), call.id, turn)
        reason = _reason(guardrail, await call_user_function(guardrail, event, threads))
        if reason is not None:
            return cut_text(reason, MAX_REASON)
    return None


def _reason(guardrail: Guardrail, answer: object) -> str | None:
    """Return the reason for a denial; None only for an answer that clearly permits."""
    if answer is None:
        return None
    reason = exact_str(answer)
    if reason is not None:
        return None if reason in ("", ALLOW) else reason
    if type(answer) is Raised:
        _log.warning("guardrail %s raised %s", name_of(guardrail), format_frames(answer.error))
        return f"a guardrail failed: {describe(answer.error)}"
    kind = type(answer).__name__
    _log.warning("guardrail %s returned %s, which is neither None nor a str", name_of(guardrail), kind)
    return f"a guardrail must return None or a str, but it returned {kind}"
