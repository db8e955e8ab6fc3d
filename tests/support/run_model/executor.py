"""Someone who executes a claimed run as the loop does, one write at a time.

One rule: what it writes follows from what it believes, and goes through the handles that an execution
has; so one who is late writes what it would have written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs

from hango.domain import (
    EarlierCall,
    Effects,
    ErrorCode,
    Interrupted,
    NewMessage,
    OutcomeStatus,
    Result,
    RunError,
    RunOutcome,
    StopReason,
    TextBlock,
    ToolContext,
    ToolResultBlock,
    ToolUseBlock,
    TurnEnd,
    Usage,
)
from hango.store.claims import Claim, ClaimKey
from hango.store.transcript import SessionTranscript

from support.run_model.model import Hold
from support.run_model.operations import Advance, Call, Release, Repeat, Settle, Write

CALLS = ("c0", "c1")  # of each turn
_OF_A_TURN = Usage(2, 1)


@attrs.define(eq=False)
class Executor:
    """One execution.

    Attributes:
        transcript: what it knows of the session.
        last: its last write, to be done again.
    """

    claim: Claim
    transcript: SessionTranscript
    last: Callable[[], Awaitable[object]] | None = None

    @classmethod
    async def of(cls, claim: Claim) -> Executor:
        """Read what there is, as every execution begins."""
        return cls(claim, await SessionTranscript.open(claim, await claim.load()))

    def interrupt(self, _: ClaimKey) -> bool:
        """Nothing goes on that could be cut short: one write is all it does."""
        return False

    def extend(self, _: ClaimKey, deadline: float) -> None:
        """Its deadline is its claim's."""

    async def write(self, op: Write, hold: Hold) -> object:
        """Do *op*, believing *hold*; return what came of it.

        Raises:
            StateConflict: as the claim does.
            StoreUnavailable: as the claim does.
        """
        match op:
            case Advance():
                advance = self._ending if hold.answered else self._answering
                return await self._repeatably(advance(hold))
            case Call():
                return await self._call(op.ordinal, hold)
            case Settle():
                return await self._repeatably(self._settling(hold, well=op.well))
            case Release():
                interrupted = Interrupted(tuple(self._said(hold, partial=True)))
                return await self._repeatably(lambda: self.claim.settle(interrupted))
            case Repeat():
                assert self.last is not None
                return await self.last()

    async def _repeatably(self, write: Callable[[], Awaitable[object]]) -> object:
        answer = await write()
        self.last = write
        return answer

    def _answering(self, hold: Hold) -> Callable[[], Awaitable[object]]:
        messages = self._said(hold, partial=False)
        return lambda: self.transcript.append(messages)

    def _ending(self, hold: Hold) -> Callable[[], Awaitable[object]]:
        turn, run = hold.turn + 1, self.claim.run
        results = tuple(ToolResultBlock(call, "paid") for call in CALLS)
        boundary = TurnEnd(turn, NewMessage("user", results, run.id, turn), _usage(turn))
        return lambda: self.transcript.end_turn(boundary)

    def _settling(self, hold: Hold, *, well: bool) -> Callable[[], Awaitable[object]]:
        run, turn = self.claim.run, hold.turn + 1
        if well and not hold.answered:
            final = NewMessage(
                "assistant", (TextBlock("Paid."),), run.id, turn, StopReason.END_TURN, _OF_A_TURN
            )
            messages = (*self._input(hold), final)
            done = RunOutcome(OutcomeStatus.DONE, turn, _usage(turn), messages, StopReason.END_TURN)
            return lambda: self.claim.settle(done)
        failed = RunOutcome(
            OutcomeStatus.ERROR,
            hold.turn,
            _usage(hold.turn),
            tuple(self._said(hold, partial=True)),
            error=RunError(ErrorCode.INTERNAL, "it broke"),
            stopped_by="internal",
        )
        return lambda: self.claim.settle(failed)

    def _said(self, hold: Hold, *, partial: bool) -> Sequence[NewMessage]:
        """Return what is not stored: the input, and the open turn's answer or what there is of it."""
        run, turn = self.claim.run, hold.turn + 1
        if hold.answered:
            return ()
        if partial:
            answer = NewMessage("assistant", (TextBlock("I pay"),), run.id, turn, partial=True)
        else:
            calls = tuple(ToolUseBlock(call, "pay") for call in CALLS)
            answer = NewMessage("assistant", calls, run.id, turn, StopReason.TOOL_USE, _OF_A_TURN)
        return (*self._input(hold), answer)

    def _input(self, hold: Hold) -> Sequence[NewMessage]:
        run = self.claim.run
        return () if hold.stored else (NewMessage("user", run.input, run.id, 0),)

    async def _call(self, ordinal: int, hold: Hold) -> object:
        context = ToolContext(self.claim.run.id, hold.turn + 1, ordinal, CALLS[ordinal])
        if ordinal in hold.begun:
            await self.claim.ledger.finish(context, Result("paid"))
            return None
        earlier = await self.claim.ledger.begin(context, "pay", Effects.UNSAFE)
        return {None: "new", EarlierCall(Effects.UNSAFE): "begun"}.get(earlier, "finished")


def _usage(turns: int) -> Usage:
    return Usage(2 * turns, turns)
