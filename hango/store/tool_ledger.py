"""The ledger of a run's `keyed` and `unsafe` tool calls, under one claim.

Rule: the start of a call is stored once, by the first execution that reaches it, and no later one
changes it.  The database's answer decides whether the tool may run, never memory.  Both writes are
fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import attrs

from hango.codec import clean_text
from hango.db.pool import Pool
from hango.db.queries import QUERIES, Query, Row
from hango.domain import EarlierCall, Effects, Result, ToolContext, new_id
from hango.errors import StateConflict
from hango.store import rows
from hango.store.fence import Fence

BEGIN_CALL = QUERIES["begin_call"]
READ_CALL = QUERIES["read_call"]
FINISH_CALL = QUERIES["finish_call"]


@attrs.frozen(eq=False)
class EffectLedger:
    """The ledger, as far as one claim may write it.

    Fits `hango.domain.Ledger`.
    """

    _pool: Pool
    _run_id: UUID
    _fence: Fence

    async def begin(self, context: ToolContext, tool: str, effects: Effects) -> EarlierCall | None:
        """Record that the call is about to start; return what an earlier execution left of it, if any.

        Raises:
            StateConflict: the claim is no longer ours, or the call not of its run's open turn.
            StoreUnavailable: the database stayed away until the deadline; it may have been recorded.
        """
        answer = await self._write(
            BEGIN_CALL,
            context,
            call_id=clean_text(context.call_id),
            tool=tool,
            effects=effects,
            begin_id=new_id(),
        )
        row = answer[0]
        return None if row["new"] else _earlier(row)

    async def earlier(self, context: ToolContext) -> EarlierCall | None:
        """Return what an earlier execution left of the call, if any.

        Raises:
            StoreUnavailable: the database stayed away until the deadline.
        """
        row = await self._fence.retry_until_deadline(partial(self._read, context))
        return None if row is None else _earlier(row)

    async def _read(self, context: ToolContext) -> Row | None:
        return await self._pool.one(
            READ_CALL, run_id=self._run_id, turn=context.turn, ordinal=context.ordinal
        )

    async def finish(self, context: ToolContext, result: Result) -> None:
        """Record what a call that was begun came to; raises as `begin`."""
        await self._write(FINISH_CALL, context, result=rows.dump_result(result))

    async def _write(self, query: Query, context: ToolContext, **values: object) -> Sequence[Row]:
        if context.run_id != self._run_id:
            raise StateConflict(f"{query.name}: the call is of another run")
        # a row is returned whenever the fence holds, so no row never means that it was done before
        answer, _ = await self._fence.write(
            query.name,
            query,
            lambda _: False,
            turn=context.turn,
            ordinal=context.ordinal,
            **values,
        )
        return answer


def _earlier(row: Row) -> EarlierCall:
    return EarlierCall(Effects(row["effects"]), rows.result(row["result"]))
