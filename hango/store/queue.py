"""The queue as a worker sees it: look, claim, renew, sweep.  The row is the queue.

One rule: who executes is decided by one conditional UPDATE, and time by the database's clock; a
worker counts its own deadline from before it asked, so it always stops first.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

import attrs
import trio

from hango.db.pool import Pool
from hango.db.queries import QUERIES, Row
from hango.domain import ErrorCode, RunState
from hango.errors import NotSent, StoreUnavailable, UniqueViolation
from hango.store import rows
from hango.store.claims import Claim, ClaimKey
from hango.store.journal import Journal
from hango.store.lease import MARGIN
from hango.telemetry import logs, metrics, names
from hango.telemetry.run_trace import Links

_log = logging.getLogger(__name__)

LIST_CLAIMABLE_HEADS = QUERIES["list_claimable_heads"]
FIND_CLAIMABLE_HEAD = QUERIES["find_claimable_head"]
CLAIM_NEXT_RUN = QUERIES["claim_next_run"]
FIND_UNCONFIRMED_CLAIMS = QUERIES["find_unconfirmed_claims"]
RELEASE_UNCONFIRMED_CLAIM = QUERIES["release_unconfirmed_claim"]
RENEW_LEASES = QUERIES["renew_leases"]
RECLAIM_LAPSED_RUNS = QUERIES["reclaim_lapsed_runs"]

_SWEEP_PAGE = 100  # rows locked at once
# Seconds after which a claim that was asked for is made or never will be: it is sent within
# 20 s (`hango.db.pool.DEADLINE`), and the server gives up within 8 s (`hango.db.connections`).
_IN_DOUBT = 30.0


@attrs.frozen
class PollResult:
    """What a poll of the table found.

    Attributes:
        heads: tenant and session of each head that may be claimed, in the order to serve them.
        next_due_in: seconds until the nearest backed-off head is due; None when none is backed off.
    """

    heads: tuple[tuple[UUID, UUID], ...]
    next_due_in: float | None


@attrs.frozen
class Renewal:
    """The answer to a heartbeat.

    Attributes:
        asked_at: when it was about to be sent (trio clock, seconds).
        renewed: claims whose lease was renewed; those neither here nor in `lost` were locked by another
            transaction and keep the deadline they have.
        lost: claims that are no longer ours; authority is gone at once.
        cancelled: claims whose run is to be cancelled; reported every time.
    """

    asked_at: float
    renewed: frozenset[ClaimKey]
    lost: frozenset[ClaimKey]
    cancelled: frozenset[ClaimKey]


def _for_executors(pool: Pool) -> Pool:
    return pool.for_executors()


@attrs.define
class RunQueue:
    """The queue, for one process.

    Attributes:
        owner_id: this process; a fresh id at each start, so that a restart is somebody else.
        lease_ttl: seconds.
        max_reclaims: leases in a row that may lapse without a finished turn; 0 for no limit.
        only: the one session to serve; None for all.
        max_running: runs of one tenant that may be running in all processes; 0 for no bound.
    """

    _pool: Pool = attrs.field(converter=_for_executors)
    owner_id: UUID
    lease_ttl: float
    max_reclaims: int
    only: UUID | None = None
    max_running: int = 0
    _unconfirmed: dict[UUID, float] = attrs.field(factory=dict, init=False)  # until when (trio clock)
    _journal: Journal = attrs.field(init=False)  # of all claims made here

    def __attrs_post_init__(self) -> None:
        """Have all claims of the process write through one journal."""
        self._journal = Journal(self._pool)

    async def poll(self, limit: int) -> PollResult:
        """List up to *limit* sessions whose head may be claimed now; of one session if it is `only`."""
        now = self._pool.now()
        if self.only is None:
            found = await self._pool.rows(
                LIST_CLAIMABLE_HEADS, now=now, limit=limit, max_running=self.max_running
            )
        else:
            found = await self._pool.rows(FIND_CLAIMABLE_HEAD, now=now, session_id=self.only)
        heads = tuple(
            (row["tenant_id"], row["session_id"]) for row in found if row["session_id"] is not None
        )
        return PollResult(heads, found[0]["next_due_in"])

    async def claim_next(self, session_id: UUID) -> Claim | None:
        """Claim the head of a session's line; None when there is none, or another was first.

        None, too, while the tenant has `max_running` running runs.

        Must not be called for a session of which this process still executes a run.

        Raises:
            StoreUnavailable: no database, or its answer was lost; a claim that was made all the same
                is given back by the next call for this session.
        """
        if self.only not in (None, session_id):
            return None
        await self._release_unconfirmed(session_id)
        asked_at = trio.current_time()
        try:
            answer = await self._pool.write(
                CLAIM_NEXT_RUN,
                max_running=self.max_running,
                session_id=session_id,
                owner_id=self.owner_id,
                lease_ttl=timedelta(seconds=self.lease_ttl),
                span_id=_new_span_id(),
                now=self._pool.now(),
            )
        except UniqueViolation:
            _count_claim("lost")
            return None
        except NotSent:  # so there is no claim to look for
            raise
        except StoreUnavailable:
            self._unconfirmed[session_id] = asked_at
            raise
        return self._claimed(answer[0], asked_at) if answer else None

    @property
    def unconfirmed(self) -> frozenset[UUID]:
        """Sessions of which this process may hold a claim that it never got the answer to."""
        return frozenset(self._unconfirmed)

    async def release_unconfirmed(self) -> None:
        """Give back all such claims; only for a process that makes no claim meanwhile.

        Raises:
            StoreUnavailable: no database; what was not given back lapses.
        """
        for session_id in self.unconfirmed:
            await self._release_unconfirmed(session_id)

    async def _release_unconfirmed(self, session_id: UUID) -> None:
        """Give back what was claimed; look again, later, for a claim that may still be on its way."""
        if (asked_at := self._unconfirmed.get(session_id)) is None:
            return
        age = trio.current_time() - asked_at
        for claim in await self._pool.rows(
            FIND_UNCONFIRMED_CLAIMS,
            session_id=session_id,
            owner_id=self.owner_id,
            # A claim made since has a whole lease; one that was lost before has next to nothing.
            least_left=timedelta(seconds=max(self.lease_ttl / 2 - age, 0)),
            now=self._pool.now(),
        ):
            await self._pool.write(
                RELEASE_UNCONFIRMED_CLAIM,
                run_id=claim["id"],
                claim_epoch=claim["claim_epoch"],
                owner_id=self.owner_id,
                now=self._pool.now(),
            )
        if age >= _IN_DOUBT:
            del self._unconfirmed[session_id]

    def _claimed(self, answer: Row, asked_at: float) -> Claim | None:
        if answer["id"] is None:
            if answer["due"]:
                _count_claim("lost")
            return None
        _count_claim("won")
        claim = Claim.of(
            self._pool,
            self._journal,
            rows.run(answer),
            lease_ttl=self.lease_ttl,
            asked_at=asked_at,
            links=Links(answer["request_trace"], answer["previous_span_id"]),
        )
        claim.more_in_line = answer["more_in_line"]
        return claim

    async def renew(self, claims: Iterable[Claim]) -> Renewal:
        """Renew the leases of *claims* in one statement, on the heartbeat's own connection.

        Raises:
            StoreUnavailable: no database, or no answer; try again until the claims' deadlines.
        """
        keys = [claim.key for claim in claims]
        asked_at = trio.current_time()
        answer = await self._pool.heartbeat_write(
            RENEW_LEASES,
            deadline=self.lease_ttl * MARGIN,
            run_ids=[run_id for run_id, _ in keys],
            claim_epochs=[epoch for _, epoch in keys],
            owner_id=self.owner_id,
            lease_ttl=timedelta(seconds=self.lease_ttl),
            now=self._pool.now(),
        )
        return Renewal(
            asked_at,
            renewed=frozenset(_key(row) for row in answer if row["renewed"]),
            lost=frozenset(_key(row) for row in answer if row["lost"]),
            cancelled=frozenset(_key(row) for row in answer if row["cancelled"]),
        )

    async def sweep(self) -> int:
        """Take back every run whose lease has lapsed, whoever owned it; return how many."""
        total = 0
        while True:
            page = await self._pool.write(
                RECLAIM_LAPSED_RUNS,
                limit=_SWEEP_PAGE,
                max_reclaims=self.max_reclaims,
                now=self._pool.now(),
            )
            for row in page:
                _note_reclaimed(row)
            total += len(page)
            if len(page) < _SWEEP_PAGE:
                return total


def _note_reclaimed(row: Row) -> None:
    """Count a run that was taken back; one that ended by it has no other process to say so."""
    state = RunState(row["state"])
    metrics.run_reclaimed.add(1, {names.OUTCOME: state.value})
    if not state.terminal:
        return
    error = {names.ERROR_TYPE: ErrorCode.CRASH_LOOP.value} if state is RunState.FAILED else {}
    metrics.run_ended.add(1, {names.STATE: state.value, **error})
    with logs.bind(run_id=row["id"]):
        level = logging.WARNING if error else logging.INFO
        _log.log(level, "the run is %s, since its lease had lapsed", state, extra=error)


def _new_span_id() -> str:
    """Draw the id of an execution's root span; all zeros would not be one."""
    return f"{secrets.randbits(64) or 1:016x}"


def _key(row: Row) -> ClaimKey:
    return (row["run_id"], row["claim_epoch"])


def _count_claim(outcome: str) -> None:
    metrics.run_claims.add(1, {names.OUTCOME: outcome})
