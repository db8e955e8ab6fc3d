"""The fence: how a write happens only while the run is still the claim's.

Every fenced statement takes the run's row with a lock, tests owner, epoch and expected turn, and
derives everything else from that row.  No row means that the fence did not hold, or that the very
same write had landed before (its answer was lost): then the run is read again, to tell which.

Used by `hango.store.claims` and `hango.store.tool_ledger`; nobody else writes for a running run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

import asyncpg
import attrs
import trio

from hango.db.pool import WRITE_DEADLINE, Pool
from hango.db.queries import QUERIES, Query, Row
from hango.domain import Run, RunState
from hango.errors import NotFound, StateConflict, StoreUnavailable
from hango.telemetry import metrics, names

READ_FATE = QUERIES["read_fate"]

T = TypeVar("T")

_RETRY_AFTER = 0.1  # seconds, doubled after each try
_RETRY_AT_MOST = 2.0  # seconds


@attrs.define(eq=False)
class Fence:
    """What a claim must still hold for its writes to count.

    Attributes:
        resume_turn: turns finished; a write names it, so that turns end in order and once.
        reclaims: as the run has it; a sweep raises it, which tells a sweep's doing from our own.
        deadline: when to have stopped (trio clock, seconds).
        lost: authority is gone; nothing more is sent.
        unanswered: messages were sent, and whether they are stored is not known.
    """

    _pool: Pool
    _run_id: UUID
    _session_id: UUID
    _owner_id: UUID | None
    _claim_epoch: int
    resume_turn: int
    reclaims: int
    deadline: float
    lost: bool = False
    unanswered: bool = False

    @classmethod
    def of(cls, pool: Pool, run: Run, deadline: float) -> Fence:
        """Fence a run as its claim returned it."""
        return cls(
            pool,
            run.id,
            run.session_id,
            run.owner_id,
            run.claim_epoch,
            run.resume_turn,
            run.reclaims,
            deadline,
        )

    def turn_ended(self, turn: int) -> None:
        """Take note of a boundary: the next write expects it, and it reset the reclaims."""
        self.resume_turn, self.reclaims = turn, 0

    async def write(
        self,
        write: str,
        query: Query,
        landed: Callable[[Row], bool],
        message_id: UUID | None,
        **values: object,
    ) -> tuple[Sequence[Row], Row]:
        """Write, again and again while the database is away and the lease holds.

        Args:
            write: its name in ``hango.fence.rejected``.
            query: a statement that returns no row when the fence does not hold.
            landed: whether a run in that state proves that this write was done already.
            message_id: the last message it stores, if any.
            values: the statement's other arguments.

        Returns:
            The statement's rows and the first of them; or none, and what the run is now, when an
            earlier try, or an earlier call, had landed already.

        Raises:
            StateConflict: the fence did not hold; nothing was changed.
            StoreUnavailable: the database stayed away until the deadline.
        """
        fenced = self._fenced(query, message_id) | values

        async def attempt() -> tuple[Sequence[Row], Row]:
            answer = await self._try(query, fenced)
            if answer:
                return answer, answer[0]
            fate = await self._fate(message_id)
            if landed(fate):
                return (), fate
            raise self._rejected(write)

        # Only of what stores messages: the calls of a turn write their effects at the same time.
        self.unanswered = self.unanswered or message_id is not None
        answered = await self.patiently(attempt)  # cancelled between two tries, it stays unanswered
        if message_id is not None:
            self.unanswered = False
        return answered

    def _fenced(self, query: Query, message_id: UUID | None) -> dict[str, object]:
        """Return what every statement must name, and what only those that store messages do."""
        of_messages = {"session_id": self._session_id, "message_id": message_id}
        return {
            "run_id": self._run_id,
            "owner_id": self._owner_id,
            "claim_epoch": self._claim_epoch,
            **{name: value for name, value in of_messages.items() if name in query.parameters},
        }

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat *attempt* until the database is there; gives up at the deadline."""
        pause = _RETRY_AFTER
        while True:
            try:
                return await attempt()
            except StoreUnavailable:
                left = self.deadline - trio.current_time()  # heartbeats may have moved it meanwhile
                if left <= 0:
                    raise
            await trio.sleep(min(pause, left))
            pause = min(pause * 2, _RETRY_AT_MOST)

    async def _try(self, query: Query, values: dict[str, object]) -> Sequence[Row]:
        if self.lost:
            raise StateConflict("the run is no longer this claim's")
        patience = min(self.deadline - trio.current_time(), WRITE_DEADLINE)
        if patience <= 0:
            raise StoreUnavailable("the lease has run out")
        try:
            return await self._pool.write(query, deadline=patience, **values)
        except asyncpg.UniqueViolationError:
            return ()  # the message is there: by us, or by who owns the run now; the fate tells

    async def _fate(self, message_id: UUID | None) -> Row:
        fate = await self._pool.one(READ_FATE, run_id=self._run_id, message_id=message_id)
        if fate is None:
            raise NotFound("the run is gone")
        return fate

    def holds(self, fate: Row) -> bool:
        """Whether a run in that state is still the claim's."""
        return bool(
            fate["state"] == RunState.RUNNING
            and fate["owner_id"] == self._owner_id
            and fate["claim_epoch"] == self._claim_epoch
        )

    def settled(self, fate: Row) -> bool:
        """Whether the claim itself, and not a sweep, ended the execution of a run in that state."""
        return bool(
            fate["state"] != RunState.RUNNING
            and fate["last_owner_id"] == self._owner_id
            and fate["claim_epoch"] == self._claim_epoch
            and fate["reclaims"] == self.reclaims
        )

    def _rejected(self, write: str) -> StateConflict:
        self.lost = True
        metrics.fence_rejected.add(1, {names.WRITE: write})
        return StateConflict(f"{write}: the run is no longer this claim's")
