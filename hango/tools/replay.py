"""Calls that must not simply run twice: how they are recorded and replayed.

Rule: a call of a keyed or unsafe tool is recorded before its function starts and again when it has a
result.  An execution that tries the turn again sees which of the two happened, so an unsafe function
starts once, whatever dies when.  The ledger's errors are raised; they are not the tool's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from hango.domain import EarlierCall, Effects, Ledger, Result, ToolContext
from hango.telemetry import names
from hango.tools.failures import CallFailure, ErrorKind
from hango.tools.tool import Tool

RECORDED = frozenset({Effects.KEYED, Effects.UNSAFE})
MAY_HAVE = "it may have taken effect"
# As long as a process that is being stopped gives the database to release a run.
RECORD_GRACE = 5.0  # seconds

_log = logging.getLogger(__name__)


async def once(
    tool: Tool, context: ToolContext, ledger: Ledger, body: Callable[[], Awaitable[Result]]
) -> Result | CallFailure:
    """Run *body* unless the ledger has the call already, and record its result.

    If cancelled before or in *body*, the call stays recorded as begun, without a result.

    Raises:
        StateConflict: the run is no longer ours; the body has not run, or its result is not recorded.
        StoreUnavailable: as above, because the database could not be reached.
    """
    earlier = await ledger.begin(context, tool.name, tool.effects)
    if earlier is not None and earlier.result is not None:
        return _recorded(tool, earlier.result)
    if earlier is not None and not _repeatable(tool, earlier):
        text = f"{tool.name} was started before and cut short, so {MAY_HAVE}; it was not run again"
        return CallFailure(ErrorKind.INTERRUPTED, text)
    # writing took time: a run that was cancelled or lost meanwhile must not start anything
    await trio.lowlevel.checkpoint_if_cancelled()
    result = await body()
    await _record(ledger, context, result)
    return result


async def denied(
    tool: Tool, context: ToolContext, ledger: Ledger, denial: CallFailure
) -> Result | CallFailure:
    """Return *denial*; if an earlier execution had begun the call, return what is known of it.

    Raises:
        StoreUnavailable: the database could not be reached.
    """
    earlier = await ledger.earlier(context)
    if earlier is None:
        return denial
    if earlier.result is not None:
        return _recorded(tool, earlier.result)
    text = f"{denial.message}; it was started before that and cut short, so {MAY_HAVE}"
    return attrs.evolve(denial, message=text)


def _recorded(tool: Tool, result: Result) -> Result:
    _log.info("tool %s: its recorded result is used", tool.name, extra={names.TOOL_NAME: tool.name})
    return result


def _repeatable(tool: Tool, earlier: EarlierCall) -> bool:
    """Return whether a call that may have run may run again: it was, and is, a keyed one."""
    return tool.effects is Effects.KEYED and earlier.effects is Effects.KEYED


async def _record(ledger: Ledger, context: ToolContext, result: Result) -> None:
    """Record *result*; a cancel waits for that, within `RECORD_GRACE`.

    Without the shield, a drain at this moment would lose a result that is known, and the next execution
    would answer that the call may have taken effect.
    """
    with trio.move_on_after(RECORD_GRACE, shield=True):
        await ledger.finish(context, result)
        return
    await ledger.finish(context, result)
