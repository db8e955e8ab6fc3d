"""A session's messages under one claim: those that are stored, and the way to store more."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from hango.domain import Message, NewMessage, TurnEnd
from hango.store.claims import Claim, Execution


@attrs.define
class SessionTranscript:
    """A session's messages under one claim: all that is stored, and the way to store more.

    Fits `hango.agent.ports.Transcript`.

    Attributes:
        messages: oldest first, what was stored through this transcript included.
    """

    _claim: Claim
    messages: list[Message]

    @classmethod
    async def open(
        cls, claim: Claim, execution: Execution, known: Sequence[Message] = ()
    ) -> SessionTranscript:
        """Read what the session has beyond *known*, the messages this process remembers.

        Nothing is read if *known* is all there is, which the last message's id shows: its seq alone
        does not when a failover lost commits.  What is remembered and no longer stored is read afresh.

        Args:
            claim: of the run.
            execution: as `Claim.load` returned it, so read after the claim.
            known: oldest first.

        Raises:
            StoreUnavailable: the database stayed away until the deadline.
        """
        if not known:
            return cls(claim, await claim.read(after=0))
        last = known[-1]
        if (last.seq, last.id) == (execution.session.last_seq, execution.last_message_id):
            return cls(claim, list(known))
        news = await claim.read(after=last.seq - 1)
        if news and news[0].id == last.id:
            return cls(claim, [*known, *news[1:]])
        return cls(claim, await claim.read(after=0))

    async def append(self, messages: Sequence[NewMessage]) -> None:
        """Store *messages* at the end, all or none; raises as `Claim.append`."""
        await self._take(await self._claim.append(messages))

    async def end_turn(self, boundary: TurnEnd) -> bool:
        """Store the boundary of a turn; return whether the run may go on; raises as `Claim.append`."""
        message, may_go_on = await self._claim.end_turn(boundary)
        await self._take([message] if message else [])
        return may_go_on

    async def catch_up(self) -> None:
        """Learn what the last write stored, if it was cut short before its answer came.

        Raises:
            StoreUnavailable: the database stayed away until the deadline.
        """
        if not self._claim.in_doubt:
            return
        known = len(self.messages)
        await self._take([])
        for message in self.messages[known:]:
            if message.run_id == self._claim.run.id and message.role == "user" and message.turn:
                self._claim.turn_ended(message.turn)

    async def _take(self, stored: Sequence[Message]) -> None:
        """Remember what was stored; read it if the answer to the write was lost."""
        last_seq = self.messages[-1].seq if self.messages else 0
        self.messages.extend(stored or await self._claim.read(after=last_seq))
