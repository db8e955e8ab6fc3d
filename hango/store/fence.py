"""The fence: a write changes something only while the run is still the claim's.

Every fenced statement takes the run's row with a lock, tests owner, epoch and expected turn, and
derives everything else from that row.  No row means that the fence did not hold, or that the same write
was applied before and its answer was lost: then the run's status is read, which tells the two apart.

Used by `hango.store.claims` and `hango.store.tool_ledger`; nothing else writes for a running run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import attrs
import trio

from hango.backoff import Backoff
from hango.db.pool import DEADLINE, Pool
from hango.db.queries import QUERIES, Query, Row
from hango.domain import Run, RunState
from hango.errors import NotFound, StateConflict, StoreUnavailable, UniqueViolation
from hango.store.journal import Item, Journal, Statement, write_alone
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
    _journal: Journal
    _run_id: UUID
    _session_id: UUID
    lease: Lease
    resume_turn: int
    reclaims: int
    in_doubt: bool = False

    @classmethod
    def of(cls, pool: Pool, journal: Journal, run: Run, lease: Lease) -> Fence:
        """Fence a run as its claim returned it."""
        return cls(pool, journal, run.id, run.session_id, lease, run.resume_turn, run.reclaims)

    def turn_ended(self, turn: int) -> None:
        """Take note of a boundary: the next write expects it, and it has reset the reclaims."""
        self.resume_turn, self.reclaims = turn, 0

    async def write(
        self, write: str, query: Query, already_applied: Callable[[Row], bool], **values: object
    ) -> tuple[Sequence[Row], Row]:
        """Write what is no message, again and again while the database is away and the lease holds.

        Args:
            write: its name in ``hango.fence.rejected``.
            query: a statement that returns no row when the fence does not hold.
            already_applied: whether that status of the run proves that this write was done before.
            values: the statement's other arguments.

        Returns:
            The statement's rows and the first of them; or none, and the run's status, when an
            earlier try or call was applied already.

        Raises:
            StateConflict: the fence did not hold; nothing was changed.
            StoreUnavailable: the database stayed away until the deadline.
        """
        fenced, pool = self._of_run() | values, self._pool.keeping_place()

        async def attempt() -> tuple[Sequence[Row], Row]:
            answer = await pool.write(query, deadline=self._patience(), **fenced)
            if answer:
                return answer, answer[0]
            return (), await self._found_applied(pool, write, already_applied, None)

        return await self.retry_until_deadline(attempt)

    async def store(
        self,
        write: str,
        statement: Statement,
        already_applied: Callable[[Row], bool],
        messages: Mapping[str, Sequence[object]],
        **values: object,
    ) -> tuple[Row, bool]:
        """Store *messages* and what goes with them, through the journal; else as `write`.

        Returns:
            The item's row and True; or the run's status and False, when an earlier try or call was
            applied already.
        """
        ids = messages["message_ids"]
        last_id = ids[-1] if ids else None
        fenced = self._of_run() | {"session_id": self._session_id, "resume_turn": self.resume_turn}
        item, pool = Item(fenced | values, messages), self._pool.keeping_place()
        send = partial(self._journal.write, pool, statement, item)

        async def attempt() -> tuple[Row, bool]:
            nonlocal send
            once, send = send, partial(write_alone, pool, statement, item)  # a repeat goes alone
            try:
                if (row := await once(deadline=self._patience())) is not None:
                    return row, True
            except UniqueViolation:
                pass  # the message is there: by us, or by who owns the run now; the status tells which
            return await self._found_applied(pool, write, already_applied, last_id), False

        # Only of what stores messages: the calls of a turn write their effects at the same time.
        self.in_doubt = self.in_doubt or last_id is not None
        answer = await self.retry_until_deadline(attempt)  # cancelled between two tries, in doubt
        if last_id is not None:
            self.in_doubt = False
        return answer

    def _of_run(self) -> dict[str, object]:
        """Return what every statement must name."""
        return {
            "run_id": self._run_id,
            "owner_id": self.lease.owner_id,
            "claim_epoch": self.lease.epoch,
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

    def _patience(self) -> float:
        """Return how many seconds a write may take.

        Raises:
            StateConflict: authority is gone.
            StoreUnavailable: the lease has run out.
        """
        if self.lease.lost:
            raise StateConflict("the run is no longer this claim's")
        patience = min(self.lease.left, DEADLINE)
        if patience <= 0:
            raise StoreUnavailable("the lease has run out")
        return patience

    async def _found_applied(
        self, pool: Pool, write: str, already_applied: Callable[[Row], bool], message_id: object
    ) -> Row:
        """Return the run's status if it proves that the write was done before; else raise."""
        status = await pool.one(READ_RUN_STATUS, run_id=self._run_id, message_id=message_id)
        if status is None:
            raise NotFound("the run is gone")
        if already_applied(status):
            return status
        self.lease.lose()
        metrics.fence_rejected.add(1, {names.WRITE: write})
        raise StateConflict(f"{write}: the run is no longer this claim's")

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
