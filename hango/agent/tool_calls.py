"""The tool calls of one turn.

Rule: one result per call, in request order.  Only cancellation and the ledger's errors are raised.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from hango.agent.callbacks import TenantThreads
from hango.agent.guardrails import Guardrail, denial
from hango.agent.ports import EventSink, Toolbox
from hango.codec import clean_text
from hango.domain import (
    Ledger,
    Result,
    ToolContext,
    ToolDenied,
    ToolFinished,
    ToolResultBlock,
    ToolStarted,
    ToolUseBlock,
)
from hango.errors import StoreError


async def run_tool_calls(
    calls: Sequence[tuple[ToolUseBlock, ToolContext]],
    *,
    tools: Toolbox,
    ledger: Ledger,
    guardrails: Sequence[Guardrail],
    threads: TenantThreads,
    events: EventSink,
    at_once: int,
) -> tuple[ToolResultBlock, ...]:
    """Run *calls*, at most *at_once* at the same time, and return their results in the same order.

    Each call's guardrails are asked just before it starts; sync ones run in *threads*.  Cancelled
    midway, nothing is returned, even if a tool swallowed the cancellation; each call started at most
    once.

    Raises:
        StoreError: the first error of the ledger; the other calls are cancelled.
    """
    results: dict[int, ToolResultBlock] = {}
    failures: list[StoreError] = []
    free = trio.Semaphore(at_once)

    async def run(call: ToolUseBlock, context: ToolContext) -> None:
        try:
            # A task's first step runs even if its run is cancelled already; without this checkpoint
            # the tool would start.  A full one also notices a lease that has just lapsed.
            await trio.lowlevel.checkpoint()
            reason = await _denial(guardrails, call, context.turn, threads)
            result = await _run_or_deny(call, context, reason, tools, ledger, events)
            block = results[context.ordinal] = _block(call, result)
            events.emit(ToolFinished(context.run_id, context.turn, block))
        except StoreError as error:  # raised from the nursery, it would arrive in a group
            failures.append(error)
            nursery.cancel_scope.cancel()
        finally:
            free.release()

    async with trio.open_nursery() as nursery:
        for call, context in calls:
            await free.acquire()
            name = f"tool call {context.turn}.{context.ordinal}"
            nursery.start_soon(run, call, context, name=name)
    await trio.lowlevel.checkpoint_if_cancelled()
    if failures:
        raise failures[0]
    return tuple(results[context.ordinal] for _, context in calls)


async def _denial(
    guardrails: Sequence[Guardrail], call: ToolUseBlock, turn: int, threads: TenantThreads
) -> str | None:
    """Return why the call may not happen; None if it may."""
    if call.raw_input is not None:  # the arguments are not JSON: the tool will not run anyway
        return None
    return await denial(guardrails, call, turn, threads)


async def _run_or_deny(
    call: ToolUseBlock,
    context: ToolContext,
    reason: str | None,
    tools: Toolbox,
    ledger: Ledger,
    events: EventSink,
) -> Result:
    """Run *call*, or answer it with *reason* if there is one."""
    if reason is not None:
        events.emit(ToolDenied(context.run_id, context.turn, call))
        return await tools.deny(call, reason, context, ledger)
    events.emit(ToolStarted(context.run_id, context.turn, call))
    return await tools.call(call, context, ledger)


def _block(call: ToolUseBlock, result: Result) -> ToolResultBlock:
    """Return the block that answers *call*; `for_user` is set only where it differs."""
    for_llm = clean_text(result.for_llm)
    for_user = None if result.for_user is None else clean_text(result.for_user)
    return ToolResultBlock(call.id, for_llm, result.is_error, None if for_user == for_llm else for_user)
