"""What a run leaves, in memory: for runs outside a database, and for tests of what runs in one.

One rule: it keeps what the stored one keeps, and so decides the same; only, it dies with the process.
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
    """The calls that were begun, whoever executes them; fits `hango.domain.Ledger`.

    To see what a tool does when its turn is driven again, call it with a ledger that has seen its
    context before.

    Attributes:
        calls: what is recorded, by run, turn and ordinal, in the order of the beginnings.
    """

    calls: dict[tuple[UUID, int, int], EarlierCall] = attrs.field(factory=dict)

    async def begin(
        self,
        context: ToolContext,
        tool: str,  # noqa: ARG002 - kept for people, and no one reads here
        effects: Effects,
    ) -> EarlierCall | None:
        """Record a call, unless it was begun before; return what there was."""
        await trio.lowlevel.checkpoint()
        earlier = self.calls.get(_key(context))
        self.calls.setdefault(_key(context), EarlierCall(effects))
        return earlier

    async def earlier(self, context: ToolContext) -> EarlierCall | None:
        """Return what there is of a call."""
        await trio.lowlevel.checkpoint()
        return self.calls.get(_key(context))

    async def finish(self, context: ToolContext, result: Result) -> None:
        """Record what a call came to.

        Raises:
            StateConflict: it was never begun.
        """
        await trio.lowlevel.checkpoint()
        begun = self.calls.get(_key(context))
        if begun is None:
            raise StateConflict("the call was never begun")
        self.calls[_key(context)] = attrs.evolve(begun, result=result)


def _key(context: ToolContext) -> tuple[UUID, int, int]:
    return context.run_id, context.turn, context.ordinal


@attrs.define(eq=False)
class MemoryTranscript:
    """A conversation that one run has to itself; fits `hango.agent.ports.Transcript`."""

    _session_id: UUID = attrs.field(factory=new_id, init=False)
    _messages: list[Message] = attrs.field(factory=list, init=False)

    @property
    def messages(self) -> Sequence[Message]:
        """All messages, oldest first."""
        return tuple(self._messages)

    async def append(self, messages: Sequence[NewMessage]) -> None:
        """Keep *messages*."""
        await trio.lowlevel.checkpoint()
        first = len(self._messages) + 1
        for seq, message in enumerate(messages, first):
            fields = attrs.asdict(message, recurse=False)
            stored = Message(
                session_id=self._session_id, seq=seq, created_at=datetime.now(UTC), **fields
            )
            self._messages.append(stored)

    async def end_turn(self, boundary: TurnEnd) -> bool:
        """Keep the end of a turn; the run may always go on."""
        await self.append([boundary.message])
        return True
