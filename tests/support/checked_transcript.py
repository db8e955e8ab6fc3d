"""A transcript in memory, for the tests of the loop: the rules of the stored one, without a database.

Its one rule: it refuses what the database would refuse, so that a test cannot pass on a write that
could never be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import attrs
import trio

from hango.domain import Message, NewMessage, TurnEnd, Usage, new_id
from hango.errors import StateConflict

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@attrs.define(eq=False)
class CheckedTranscript:
    """One session's messages, under one claim of one run.

    Attributes:
        run_id: the run whose turns end here.
        resume_turn: its finished turns.
        writes: what was done, one entry per write, in order.
        handing_over: makes the next boundary answer that the run may not go on.
        after_write: called when a write is done, before it returns, which may be cancelled there.
    """

    run_id: UUID = attrs.field(factory=new_id)
    resume_turn: int = 0
    usage: Usage = attrs.field(factory=Usage)
    writes: list[str] = attrs.field(factory=list)
    handing_over: bool = False
    after_write: Callable[[str], object] = str
    session_id: UUID = attrs.field(factory=new_id)
    _messages: list[Message] = attrs.field(factory=list)

    @property
    def messages(self) -> Sequence[Message]:
        """All messages, oldest first."""
        return tuple(self._messages)

    async def append(self, messages: Sequence[NewMessage]) -> None:
        """Store *messages*, all or none; shielded, as a write that was sent is not taken back."""
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        self.store(messages)
        await self._wrote("append")

    async def end_turn(self, boundary: TurnEnd) -> bool:
        """Store the end of a turn; refuse one that is not the next."""
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        key = (boundary.message.run_id, boundary.message.turn, boundary.message.role)
        if boundary.turn != self.resume_turn + 1 or key != (self.run_id, boundary.turn, "user"):
            raise StateConflict(f"turn {boundary.turn} does not follow {self.resume_turn}")
        self.store([boundary.message])
        self.resume_turn, self.usage = boundary.turn, boundary.usage
        await self._wrote("end_turn")
        return not self.handing_over

    async def _wrote(self, write: str) -> None:
        self.writes.append(write)
        self.after_write(write)
        await trio.lowlevel.checkpoint()

    def store(self, messages: Iterable[NewMessage]) -> None:
        """Store *messages* at the end, as the API or a terminal write would.

        Repeating a whole write changes nothing; a new one with a message that is there is refused.
        """
        new, known = list(messages), {message.id for message in self._messages}
        if known.issuperset(message.id for message in new):
            return
        keys: set[object] = {(m.run_id, m.turn, m.role) for m in self._messages if m.run_id is not None}
        for message in new:
            key = (message.run_id, message.turn, message.role)
            if key in keys or message.id in known or (message.run_id is None) != (message.turn is None):
                raise StateConflict(f"there is a message of {key}")
            keys.add(key) if message.run_id is not None else None
        self._messages += map(self._stored, new, range(len(self._messages) + 1, 1 << 32))

    def _stored(self, message: NewMessage, seq: int) -> Message:
        fields = attrs.asdict(message, recurse=False)
        return Message(session_id=self.session_id, seq=seq, created_at=_NOW, **fields)
