"""Runs the tool calls of one turn.

Rule: one result per call, in request order, however long each takes; only cancellation and the
ledger's errors get out.  Used by the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import attrs
import trio

from hango.agent.guardrails import Guardrail, denial
from hango.agent.ports import EventSink, Toolbox
from hango.codec import clean_text
from hango.domain import (
    Ledger,
    Result,
    Scope,
    ToolContext,
    ToolDenied,
    ToolFinished,
    ToolResultBlock,
    ToolStarted,
    ToolUseBlock,
)
from hango.errors import StoreError


@attrs.frozen
class Act:
    """The tool calls of one turn, on their way to results.

    Attributes:
        at_once: calls that run at the same time.
        ledger: what tells a call that is run again from one that is new.
        scope: on whose behalf the run executes.
        guardrails: asked before each call, in this order.
    """

    tools: Toolbox
    ledger: Ledger
    emit: EventSink
    run_id: UUID
    turn: int
    scope: Scope | None
    at_once: int
    guardrails: Sequence[Guardrail] = ()

    async def results(self, calls: Sequence[ToolUseBlock]) -> tuple[ToolResultBlock, ...]:
        """Run *calls* and return their results, in request order.

        Cancelled midway, it returns nothing, even if a tool swallowed the cancellation; each call
        was started at most once.

        Raises:
            StoreError: as the ledger does, the first of them; the other calls are cancelled.
        """
        done: dict[int, ToolResultBlock] = {}
        failures: list[StoreError] = []
        free = trio.Semaphore(self.at_once)

        async def run(ordinal: int, call: ToolUseBlock) -> None:
            try:
                done[ordinal] = await self._run(ordinal, call)
            except StoreError as error:  # not out of the nursery: that would put it into a group
                failures.append(error)
                nursery.cancel_scope.cancel()
            finally:
                free.release()

        async with trio.open_nursery() as nursery:
            for ordinal, call in enumerate(calls):
                await free.acquire()
                nursery.start_soon(run, ordinal, call, name=f"tool call {self.turn}.{ordinal}")
        await trio.lowlevel.checkpoint_if_cancelled()
        if failures:
            raise failures[0]
        return tuple(done[ordinal] for ordinal in range(len(calls)))

    async def _run(self, ordinal: int, call: ToolUseBlock) -> ToolResultBlock:
        """Run one call, if its guardrails permit it; each is asked before its own start."""
        # A task starts even where all is cancelled, and its body would run up to its first checkpoint.
        # A whole one, not `checkpoint_if_cancelled`: a lease that ran out is noticed between two steps.
        await trio.lowlevel.checkpoint()
        context = ToolContext(self.run_id, self.turn, ordinal, call.id, self.scope)
        reason = await self._denial(call)
        if reason is not None:
            self.emit.emit(ToolDenied(self.run_id, self.turn, call))
            result = await self.tools.deny(call, reason, context, self.ledger)
        else:
            self.emit.emit(ToolStarted(self.run_id, self.turn, call))
            result = await self.tools.call(call, context, self.ledger)
        block = _block(call, result)
        self.emit.emit(ToolFinished(self.run_id, self.turn, block))
        return block

    async def _denial(self, call: ToolUseBlock) -> str | None:
        """Return why the call may not happen; one without arguments to judge cannot happen anyway."""
        if call.raw_input is not None:
            return None
        return await denial(self.guardrails, call, self.turn)


def _block(call: ToolUseBlock, result: Result) -> ToolResultBlock:
    """Return *result* as the block that answers *call*, with what a person sees where it differs."""
    for_llm = clean_text(result.for_llm)
    for_user = None if result.for_user is None else clean_text(result.for_user)
    return ToolResultBlock(call.id, for_llm, result.is_error, None if for_user == for_llm else for_user)
