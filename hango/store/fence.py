"""The fence: a write changes something only while the run is still the claim's.

Every fenced statement takes the run's row with a lock, tests owner, epoch and expected turn, and
derives everything else from that row.  No row means that the fence did not hold, or that the same write
was applied before and its answer was lost: then the run's status is read, which tells the two apart.

Used by `hango.store.claims` and `hango.store.tool_ledger`; nothing else writes for a running run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

import attrs
import trio

from hango.backoff import Backoff
from hango.db.pool import DEADLINE, Pool
from hango.db.queries import QUERIES, Query, Row
from hango.domain import Run, RunState
from hango.errors import NotFound, StateConflict, StoreUnavailable, UniqueViolation
from hango.store.lease import Lease
from hango.telemetry import metrics, names

READ_RUN_STATUS = QUERIES["read_run_status"]

T = TypeVar("T")

_FIRST_PAUSE = 0.1  # seconds between two tries, doubled after each
_LONGEST_PAUSE = 2.0  # seconds


@attrs.define(eq=False)
class Fence:
    """The writes of one claim.

    Attributes:
        lease: owner, epoch and time; a rejected write loses it.
        resume_turn: turns finished; a write names it, so that turns end in order and once.
        reclaims: as the run has it; a sweep raises it, which tells its doing from our own.
        in_doubt: messages were sent, and it is not known whether they are stored.
    """

    _pool: Pool
    _run_id: UUID
    _session_id: UUID
    lease: Lease
    resume_turn: int
    reclaims: int
    in_doubt: bool = False

    @classmethod
    def of(cls, pool: Pool, run: Run, lease: Lease) -> Fence:
        """Fence a run as its claim returned it."""
        return cls(pool, run.id, run.session_id, lease, run.resume_turn, run.reclaims)

    def turn_ended(self, turn: int) -> None:
        """Take note of a boundary: the next write expects it, and it has reset the reclaims."""
        self.resume_turn, self.reclaims = turn, 0

    async def write(
        self,
        write: str,
        query: Query,
        already_applied: Callable[[Row], bool],
        message_id: UUID | None,
        **values: object,
    ) -> tuple[Sequence[Row], Row]:
        """Write, again and again while the database is away and the lease holds.

        Args:
            write: its name in ``hango.fence.rejected``.
            query: a statement that returns no row when the fence does not hold.
            already_applied: whether that status of the run proves that this write was done before.
            message_id: the last message it stores, if any.
            values: the statement's other arguments.

        Returns:
            The statement's rows and the first of them; or none, and the run's status, when an
            earlier try or call was applied already.

        Raises:
            StateConflict: the fence did not hold; nothing was changed.
            StoreUnavailable: the database stayed away until the deadline.
        """
        fenced, pool = self._fenced(query, message_id) | values, self._pool.keeping_place()

        async def attempt() -> tuple[Sequence[Row], Row]:
            answer = await self._try(pool, query, fenced)
            if answer:
                return answer, answer[0]
            status = await self._run_status(pool, message_id)
            if already_applied(status):
                return (), status
            raise self._rejected(write)

        # Only of what stores messages: the calls of a turn write their effects at the same time.
        self.in_doubt = self.in_doubt or message_id is not None
        answer = await self.retry_until_deadline(attempt)  # cancelled between two tries, in doubt
        if message_id is not None:
            self.in_doubt = False
        return answer

    def _fenced(self, query: Query, message_id: UUID | None) -> dict[str, object]:
        """Return what every statement must name, and what only those that store messages do."""
        of_messages = {"session_id": self._session_id, "message_id": message_id}
        return {
            "run_id": self._run_id,
            "owner_id": self.lease.owner_id,
            "claim_epoch": self.lease.epoch,
            **{name: value for name, value in of_messages.items() if name in query.parameters},
        }

    async def retry_until_deadline(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat *attempt* until the database is there; gives up at the lease's deadline."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                return await attempt()
            except StoreUnavailable as error:
                if not self.lease.left:  # a heartbeat may have moved the deadline meanwhile
                    raise
                self._pool.note_repeat(error)
            await trio.sleep(min(backoff.pause(), self.lease.left))

    async def _try(self, pool: Pool, query: Query, values: dict[str, object]) -> Sequence[Row]:
        if self.lease.lost:
            raise StateConflict("the run is no longer this claim's")
        patience = min(self.lease.left, DEADLINE)
        if patience <= 0:
            raise StoreUnavailable("the lease has run out")
        try:
            return await pool.write(query, deadline=patience, **values)
        except UniqueViolation:
            return ()  # the message is there: by us, or by who owns the run now; the status tells which

    async def _run_status(self, pool: Pool, message_id: UUID | None) -> Row:
        status = await pool.one(READ_RUN_STATUS, run_id=self._run_id, message_id=message_id)
        if status is None:
            raise NotFound("the run is gone")
        return status

    def holds(self, status: Row) -> bool:
        """Whether a run of that status is still the claim's."""
        return bool(
            status["state"] == RunState.RUNNING
            and status["owner_id"] == self.lease.owner_id
            and status["claim_epoch"] == self.lease.epoch
        )

    def settled(self, status: Row) -> bool:
        """Whether the claim itself, and not a sweep, ended the execution of a run of that status."""
        return bool(
            status["state"] != RunState.RUNNING
            and status["last_owner_id"] == self.lease.owner_id
            and status["claim_epoch"] == self.lease.epoch
            and status["reclaims"] == self.reclaims
        )

    def _rejected(self, write: str) -> StateConflict:
        self.lease.lose()
        metrics.fence_rejected.add(1, {names.WRITE: write})
        return StateConflict(f"{write}: the run is no longer this claim's")
