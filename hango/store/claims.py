"""What the executor of a run writes, through the one handle that can: its claim.

One rule: every write is fenced by owner and epoch, under lock, so a write by someone who no longer
owns the run changes nothing.  A write whose answer was lost is sent again: if the first one landed,
the second finds it there, and that is success.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

import attrs
import trio

from hango.codec import clean_text
from hango.db.pool import Pool
from hango.db.queries import QUERIES
from hango.domain import (
    AgentDefinition,
    Interrupted,
    Message,
    NewMessage,
    Run,
    RunOutcome,
    RunState,
    Session,
    TurnEnd,
    User,
)
from hango.errors import NotFound
from hango.store import rows
from hango.store.fence import Fence
from hango.store.journal import APPEND_MESSAGES, END_TURN, RELEASE_RUN, SETTLE_RUN, Journal
from hango.store.lease import Lease
from hango.store.tool_ledger import EffectLedger
from hango.telemetry.run_trace import Links

LOAD_EXECUTION = QUERIES["load_execution"]
READ_TRANSCRIPT = QUERIES["read_transcript"]
POSTPONE_RUN = QUERIES["postpone_run"]
ABANDON_RUN = QUERIES["abandon_run"]

ClaimKey: TypeAlias = tuple[UUID, int]
"""A run and the epoch of its claim: what a heartbeat renews and an interrupt aims at."""


@attrs.frozen
class Execution:
    """What an execution needs to know, as it is today.

    Attributes:
        last_message_id: of the session's message with the highest seq; None when it has none.
        creator: of the run; None when gone.
        agent: of the session; None when gone.
    """

    session: Session
    last_message_id: UUID | None
    creator: User | None
    agent: AgentDefinition | None


@attrs.define(eq=False)
class Claim:
    """The right to execute one run, and the only handle that can write for it.

    Attributes:
        run: as it was when claimed.
        lease: how long the right lasts.
        links: what its trace refers to.
        cancelled: a cancel was reported.
        draining: the process drains: `end_turn` answers that the run may not go on.
        more_in_line: another run waited behind it when it was claimed.
    """

    _pool: Pool
    run: Run
    lease: Lease
    _fence: Fence
    cancelled: bool = False
    draining: bool = False
    more_in_line: bool = False
    links: Links = attrs.field(factory=Links)

    @classmethod
    def of(
        cls,
        pool: Pool,
        journal: Journal,
        run: Run,
        *,
        lease_ttl: float,
        asked_at: float,
        links: Links,
    ) -> Claim:
        """Return the handle of a run just claimed.

        Args:
            pool: the run's database.
            journal: of the process.
            run: as claimed.
            lease_ttl: seconds.
            asked_at: when the claim was about to be sent (trio clock, seconds).
            links: what its trace refers to.
        """
        lease = Lease.granted(run.owner_id, run.claim_epoch, ttl=lease_ttl, asked_at=asked_at)
        return cls(pool, run, lease, Fence.of(pool, journal, run, lease), links=links)

    @property
    def key(self) -> ClaimKey:
        """The run and the epoch."""
        return (self.run.id, self.run.claim_epoch)

    @property
    def ledger(self) -> EffectLedger:
        """The ledger of the run's calls, to be written under this claim."""
        return EffectLedger(self._pool, self.run.id, self._fence)

    async def load(self) -> Execution:
        """Read session, creator and agent as they are now: rights are today's.

        Raises:
            StoreUnavailable: the database stayed away until the deadline.
            NotFound: the run is gone.
        """
        row = await self._fence.retry_until_deadline(
            lambda: self._pool.one(LOAD_EXECUTION, run_id=self.run.id)
        )
        if row is None:
            raise NotFound("the run is gone")
        creator, agent = row["creator"], row["agent"]
        return Execution(
            session=rows.session(rows.nested(row["session"])),
            last_message_id=row["last_message_id"],
            creator=rows.user(rows.nested(creator)) if creator else None,
            agent=rows.agent(rows.nested(agent)) if agent else None,
        )

    async def read(self, *, after: int) -> list[Message]:
        """Read the session's messages whose seq is above *after*, oldest first.

        Raises:
            StoreUnavailable: the database stayed away until the deadline.
        """
        found = await self._fence.retry_until_deadline(
            lambda: self._pool.rows(READ_TRANSCRIPT, session_id=self.run.session_id, after=after)
        )
        return [rows.message(row) for row in found]

    async def append(self, messages: Sequence[NewMessage]) -> list[Message]:
        """Store *messages*, all or none; repeating it changes nothing.

        Returns them as stored, in their order; empty when they were there already.

        Raises:
            StateConflict: the claim is no longer ours; nothing was changed.
            StoreUnavailable: the database stayed away until the deadline.
        """
        columns = rows.message_columns(messages)
        row, is_new = await self._fence.store(
            "append",
            APPEND_MESSAGES,
            lambda status: self._fence.holds(status) and bool(status["stored"]),
            columns,
        )
        return rows.stored_messages(messages, columns, self.run.session_id, row) if is_new else []

    async def end_turn(self, boundary: TurnEnd) -> tuple[Message | None, bool]:
        """Store the boundary of a turn; return its message as stored, and whether the run may go on.

        The message is None when it was there already.  Raises as `append`.
        """
        columns, asked_at = rows.message_columns([boundary.message]), trio.current_time()
        row, is_new = await self._fence.store(
            "end_turn",
            END_TURN,
            lambda status: self._fence.holds(status) and status["resume_turn"] == boundary.turn,
            columns,
            resume_turn=boundary.turn - 1,
            usage=rows.dump_usage(boundary.usage),
            lease_ttl=timedelta(seconds=self.lease.ttl),
            rejected=boundary.rejected,
        )
        self._fence.turn_ended(boundary.turn)
        self.cancelled = self.cancelled or bool(row["cancelled"])
        may_go_on = not (self.cancelled or self.draining)
        if not is_new:  # an earlier call had renewed the lease, and it is not known when
            return None, may_go_on
        self.lease.renew(asked_at)
        (stored,) = rows.stored_messages([boundary.message], columns, self.run.session_id, row)
        return stored, may_go_on

    @property
    def in_doubt(self) -> bool:
        """Whether a write was cut short, so that it is not known whether it was done."""
        return self._fence.in_doubt

    def turn_ended(self, turn: int) -> None:
        """Take note of a boundary that was found stored."""
        if turn == self._fence.resume_turn + 1:
            self._fence.turn_ended(turn)

    async def settle(self, outcome: RunOutcome | Interrupted) -> RunState:
        """End the execution with its one last write; return the state the run is in after it.

        Interrupted ends as cancelled if that was asked for, else the run is queued again.

        Raises:
            StateConflict: the claim is no longer ours; nothing was changed.
            StoreUnavailable: the database stayed away until the deadline; the sweep will decide.
        """
        if isinstance(outcome, Interrupted):
            return await self._release(outcome)
        return await self._finish(outcome)

    async def postpone(self, waiting_on: str, *, grace: float) -> bool:
        """Put the run back for a process that can execute it; return False if that was tried too long.

        Args:
            waiting_on: what this process lacks.
            grace: seconds since the first time that any process lacked something.

        Raises:
            StateConflict: the claim is no longer ours; nothing was changed.
            StoreUnavailable: the database stayed away until the deadline.
        """
        stored, status = await self._fence.write(
            "postpone",
            POSTPONE_RUN,
            lambda status: self._fence.settled(status) or self._fence.holds(status),
            waiting_on=waiting_on,
            grace=timedelta(seconds=grace),
            now=self._pool.now(),
        )
        return bool(stored) or not self._fence.holds(status)

    async def abandon(self) -> None:
        """End the lease at once, so that the next sweep takes the run back and counts it.

        Raises:
            StateConflict: the claim is no longer ours; nothing was changed.
            StoreUnavailable: the database stayed away until the deadline.
        """
        await self._fence.write(
            "abandon",
            ABANDON_RUN,
            lambda status: not self._fence.holds(status),
            now=self._pool.now(),
        )

    async def _finish(self, outcome: RunOutcome) -> RunState:
        error = outcome.error
        await self._fence.store(
            "settle",
            SETTLE_RUN,
            lambda status: self._fence.settled(status) and status["state"] == outcome.state,
            rows.message_columns(outcome.messages),
            state=outcome.state,
            iterations=outcome.iterations,
            usage=rows.dump_usage(outcome.usage),
            stop_reason=outcome.stop_reason,
            stopped_by=clean_text(outcome.stopped_by),
            error_code=error.code if error else None,
            error=clean_text(error.message) if error else None,
            final_message_id=_last_answer(outcome.messages),
        )
        return outcome.state

    async def _release(self, interrupted: Interrupted) -> RunState:
        row, _ = await self._fence.store(
            "release",
            RELEASE_RUN,
            self._fence.settled,
            rows.message_columns(interrupted.messages),
            final_message_id=_last_answer(interrupted.messages),
        )
        return RunState(row["state"])


def _last_answer(messages: Sequence[NewMessage]) -> UUID | None:
    answers = [message.id for message in messages if message.role == "assistant"]
    return answers[-1] if answers else None
