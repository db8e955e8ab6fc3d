"""Calls that must not just run twice: what is recorded round them, and what is done the next time.

Rule: a call of a keyed or unsafe tool is recorded before its body starts and again when there is a
result.  So whoever drives its turn again knows which of the two happened, and an unsafe body starts
once, whatever dies when.  The ledger's errors are not the tool's: they get out.  Used by `View`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from hango.domain import EarlierCall, Effects, Ledger, Result, ToolContext
from hango.telemetry import names
from hango.tools.failures import ErrorKind, Failure
from hango.tools.tool import Tool

RECORDED = frozenset({Effects.KEYED, Effects.UNSAFE})
MAY_HAVE = "it may have taken effect"
# As long as a process that is being stopped gives the database to take a run back.
RECORD_GRACE = 5.0  # seconds

_log = logging.getLogger(__name__)


async def once(
    tool: Tool, context: ToolContext, ledger: Ledger, body: Callable[[], Awaitable[Result]]
) -> Result | Failure:
    """Run *body* if the ledger says that it may, and record what it comes to.

    Cancelled before or in the body, the call stays recorded as begun, without a result.

    Raises:
        StateConflict: the run is no longer ours; the body has not run, or its result is not recorded.
        StoreUnavailable: as above, the database stayed away.
    """
    earlier = await ledger.begin(context, tool.name, tool.effects)
    if earlier is not None and earlier.result is not None:
        return _recorded(tool, earlier.result)
    if earlier is not None and not _repeatable(tool, earlier):
        told = f"{tool.name} was started before and cut short, so {MAY_HAVE}; it was not run again"
        return Failure(ErrorKind.INTERRUPTED, told)
    # writing took time: a run that was cancelled or lost meanwhile starts nothing any more
    await trio.lowlevel.checkpoint_if_cancelled()
    result = await body()
    await _record(ledger, context, result)
    return result


async def denied(tool: Tool, context: ToolContext, ledger: Ledger, denial: Failure) -> Result | Failure:
    """Return *denial*, unless the call had begun before: then it is not true that it did not happen.

    Raises:
        StoreUnavailable: the database stayed away.
    """
    earlier = await ledger.earlier(context)
    if earlier is None:
        return denial
    if earlier.result is not None:
        return _recorded(tool, earlier.result)
    told = f"{denial.message}; it was started before that and cut short, so {MAY_HAVE}"
    return attrs.evolve(denial, message=told)


def _recorded(tool: Tool, result: Result) -> Result:
    _log.info("tool %s: its recorded result is used", tool.name, extra={names.TOOL_NAME: tool.name})
    return result


def _repeatable(tool: Tool, earlier: EarlierCall) -> bool:
    """Tell whether a body that may have run may run again: both times it has to heed the key."""
    return tool.effects is Effects.KEYED and earlier.effects is Effects.KEYED


async def _record(ledger: Ledger, context: ToolContext, result: Result) -> None:
    """Record *result*; a cancel has to wait for that, but not for ever.

    Without the shield, a run handed over at this moment would be told that it is not known what
    became of the call, although it is.
    """
    with trio.move_on_after(RECORD_GRACE, shield=True):
        await ledger.finish(context, result)
        return
    await ledger.finish(context, result)
