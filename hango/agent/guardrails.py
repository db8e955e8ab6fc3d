"""Guardrails: may this tool call happen?

Rule: a call happens only if every guardrail permits it; the first that does not is the last that is
asked, and one that raises or answers nonsense does not.  There are no other hooks before a tool.
Used by whoever runs the calls of a turn.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs

from hango.agent.callbacks import Raised, call_user_function, exact_str
from hango.codec import cut_text
from hango.domain import JsonObject, ToolUseBlock
from hango.safe_errors import describe, format_frames
from hango.threads import Threads

ALLOW = "allow"
MAX_REASON = 1000  # bytes a model is told of why a call was denied

# Their own: neither tools that hang nor verifiers, which are often slow, keep a call from being judged.
_THREADS = Threads()
_log = logging.getLogger(__name__)


@attrs.frozen
class BeforeToolEvent:
    """A tool call that is about to happen.

    Attributes:
        name: of the tool; a model may have made it up.
        args: as the model gave them, not yet checked against the tool's schema; the guardrail's own
            copy, so that changing it changes nothing.
        id: of the call, as in the transcript.
        turn: of the run, from 1.
    """

    name: str
    args: JsonObject
    id: str
    turn: int


Guardrail: TypeAlias = Callable[[BeforeToolEvent], str | Awaitable[str | None] | None]
"""Permits a call by answering None, ``""`` or ``"allow"``; any other text denies it, and is the reason.

Async or sync; a sync one runs in a thread.  Calls of one turn are asked about at the same time, and a
call whose turn is driven again is asked about again.
"""


async def denial(guardrails: Sequence[Guardrail], call: ToolUseBlock, turn: int) -> str | None:
    """Return why *call* may not happen, cleaned and bounded; None when it may.

    The guardrails are asked in order.  Cancelled midway, nothing comes back.
    """
    for guardrail in guardrails:
        event = BeforeToolEvent(call.name, copy.deepcopy(call.input), call.id, turn)
        reason = _read(guardrail, await call_user_function(guardrail, event, _THREADS))
        if reason is not None:
            return cut_text(reason, MAX_REASON)
    return None


def _read(guardrail: Guardrail, answer: object) -> str | None:
    """Return the reason in *answer*; None only for what clearly permits."""
    if answer is None:
        return None
    reason = exact_str(answer)
    if reason is not None:
        return None if reason in ("", ALLOW) else reason
    if type(answer) is Raised:
        _log.warning("guardrail %s raised %s", _name_of(guardrail), format_frames(answer.error))
        return f"a guardrail failed: {describe(answer.error)}"
    kind = type(answer).__name__
    _log.warning("guardrail %s returned %s, which is neither None nor a str", _name_of(guardrail), kind)
    return f"a guardrail must return None or a str, but it returned {kind}"


def _name_of(guardrail: Guardrail) -> str:
    """Return what the log calls it; an object is not asked, it may answer anything."""
    kind = type(guardrail).__qualname__
    return getattr(guardrail, "__qualname__", kind) if inspect.isroutine(guardrail) else kind
