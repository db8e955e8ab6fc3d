"""In-memory Transcript and Ledger, for runs in this process and for tests.

They decide as the ones in Postgres do; but what they record is lost with the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import attrs
import trio

from hango.domain import (
    EarlierCall,
    Effects,
    Message,
    NewMessage,
    Result,
    ToolContext,
    TurnEnd,
    new_id,
)
from hango.errors import StateConflict


@attrs.define
class MemoryLedger:
    """The calls that were started; implements `hango.domain.Ledger`.

    To see what a tool does when its turn is replayed, call it twice with one ledger and one context.

    Attributes:
        calls: the records by run, turn and ordinal, in the order in which the calls started.
    """

    calls: dict[tuple[UUID, int, int], EarlierCall] = attrs.field(factory=dict)

    async def begin(
        self,
        context: ToolContext,
        tool: str,  # noqa: ARG002 - the stored ledger keeps it for people
        effects: Effects,
    ) -> EarlierCall | None:
        """Record a call, unless it was started before; return the former record."""
        await trio.lowlevel.checkpoint()
        earlier = self.calls.get(_key(context))
        self.calls.setdefault(_key(context), EarlierCall(effects))
        return earlier

    async def earlier(self, context: ToolContext) -> EarlierCall | None:
        """Return the record of a call; None if it was not started."""
        await trio.lowlevel.checkpoint()
        return self.calls.get(_key(context))

    async def finish(self, context: ToolContext, result: Result) -> None:
        """Record the result of a call.

        Raises:
            StateConflict: it was not started.
        """
        await trio.lowlevel.checkpoint()
        started = self.calls.get(_key(context))
        if started is None:
            raise StateConflict("the call was not started")
        self.calls[_key(context)] = attrs.evolve(started, result=result)


def _key(context: ToolContext) -> tuple[UUID, int, int]:
    return context.run_id, context.turn, context.ordinal


@attrs.define(eq=False)
class MemoryTranscript:
    """The messages of one run; implements `hango.agent.ports.Transcript`."""

    _session_id: UUID = attrs.field(factory=new_id, init=False)
    _messages: list[Message] = attrs.field(factory=list, init=False)

    @property
    def messages(self) -> Sequence[Message]:
        """All messages, oldest first."""
        return self._messages

    async def append(self, messages: Sequence[NewMessage]) -> None:
        """Add *messages* at the end."""
        await trio.lowlevel.checkpoint()
        first = len(self._messages) + 1
        for seq, message in enumerate(messages, first):
            fields = attrs.asdict(message, recurse=False)
            stored = Message(
                session_id=self._session_id, seq=seq, created_at=datetime.now(UTC), **fields
            )
            self._messages.append(stored)

    async def end_turn(self, boundary: TurnEnd) -> bool:
        """Add the end of a turn; the run may always go on."""
        await self.append([boundary.message])
        return True
