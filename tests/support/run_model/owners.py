"""Three owners on one Postgres, who do what they are told.

One rule: they are what a process is, an owner id and connections of its own, with hango's queue, claims
and leases; only the clocks are the test's.  Whether what they do is right, `verdict` tells.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from uuid import UUID

import attrs
import pytest

from hango.actors.leases import Leases
from hango.db.pool import Pool, open_pool
from hango.db.queries import Query
from hango.db.queries import Row as Record
from hango.domain import RunState, Session, TextBlock, new_id
from hango.errors import SessionQueueFull, StateConflict, StoreUnavailable
from hango.store.queue import RunQueue
from hango.store.runs import Runs
from hango.testing.plugin import SeededTenant, sql

from support.run_model.executor import Executor
from support.run_model.model import AWAY, CAP, CONFLICT, FULL, MAX_RECLAIMS, TTL, Hold
from support.run_model.operations import (
    OWNERS,
    SESSIONS,
    Advance,
    Call,
    Cancel,
    Claim,
    Create,
    Drain,
    Look,
    Op,
    Release,
    Renew,
    Repeat,
    Settle,
    Sweep,
    Write,
)


@attrs.define(eq=False)
class Owner:
    """A process, as far as its runs are concerned."""

    queue: RunQueue
    leases: Leases = attrs.field(factory=Leases)


@attrs.define(eq=False)
class Owners:
    """Three owners, and two sessions that they serve.

    Attributes:
        world: whose sessions they are.
        owners: in order; each begins anew with every trial.
        executors: of all the claims that were made, in order.
    """

    world: SeededTenant
    _pools: Sequence[Pool]
    _deaf: set[tuple[UUID, UUID]] = attrs.field(factory=set)
    owners: Sequence[Owner] = ()
    sessions: Sequence[Session] = ()
    executors: list[Executor] = attrs.field(factory=list)
    _claimed: dict[Op, Executor] = attrs.field(factory=dict)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        database: str,
        world: SeededTenant,
        now: Callable[[], datetime],
        monkeypatch: pytest.MonkeyPatch,
    ) -> AsyncIterator[Owners]:
        """Have them; *now* is what the database is told."""
        async with AsyncExitStack() as stack:
            pools = [open_pool(database, size=4, now=now) for _ in OWNERS]
            owners = cls(world, [await stack.enter_async_context(pool) for pool in pools])
            owners._lose_answers(monkeypatch)
            yield owners

    def _lose_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a claim be made without an answer, for those who are deaf."""
        write = Pool.write

        async def lossy(
            pool: Pool, query: Query, *, deadline: float = 10.0, **values: object
        ) -> Sequence[Record]:
            answer = await write(pool, query, deadline=deadline, **values)
            asked = (values.get("owner_id"), values.get("session_id"))
            if query.name == "claim_next_run" and asked in self._deaf:
                raise StoreUnavailable("the answer was lost")
            return answer

        monkeypatch.setattr(Pool, "write", lossy)

    async def begin(self) -> None:
        """Begin anew, with nothing stored."""
        await sql(self.world.pool, "truncate sessions, audit_events cascade")
        self.sessions = [await self.world.session() for _ in SESSIONS]
        self.owners = [Owner(RunQueue(pool, new_id(), TTL, MAX_RECLAIMS)) for pool in self._pools]
        self.executors, self._claimed = [], {}

    def rest(self, ops: Sequence[Op]) -> None:
        """Let the claims that *ops* have made be kept from now on, in their order."""
        for op in ops:
            if isinstance(op, Claim) and (executor := self._claimed.get(op)):
                self.executors.append(executor)
                self.owners[op.owner].leases.add(executor.claim, executor)
        self._claimed = {}

    async def do(self, op: Op, ids: Sequence[Sequence[UUID]], holds: Sequence[Hold]) -> object:
        """Do *op*; return what was answered, in the words of the model.

        Args:
            op: what to do.
            ids: of the runs of each session, in order.
            holds: what those with a claim believe.
        """
        try:
            match op:
                case Create() | Cancel():
                    return await self._use(op, ids)
                case Advance() | Call() | Settle() | Release() | Repeat():
                    return await self._write(op, holds[op.hold])
                case _:
                    return await self._serve(op)
        except StateConflict:
            return CONFLICT
        except StoreUnavailable:
            return AWAY
        except SessionQueueFull:
            return FULL

    async def _use(self, op: Create | Cancel, ids: Sequence[Sequence[UUID]]) -> object:
        # by a pool whose clock is that of the leases
        runs, scope = Runs(self._pools[0]), self.world.scope()
        if isinstance(op, Cancel):
            return (await runs.cancel(scope, ids[op.session][op.place - 1])).state
        said = (TextBlock("Pay."),)
        run = await runs.create(scope, self.sessions[op.session].id, said, max_live=CAP)
        return run.session_seq

    async def _serve(self, op: Claim | Renew | Sweep | Look | Drain) -> object:
        owner = self.owners[op.owner]
        match op:
            case Claim():
                return await self._claim(op, owner)
            case Renew():
                return await self._renew(owner, heard=op.heard)
            case Sweep():
                return await owner.queue.sweep()
            case Look():
                found = await owner.queue.poll(limit=len(SESSIONS))
                order = [session.id for session in self.sessions]
                return frozenset(order.index(session_id) for _, session_id in found.heads), (
                    found.next_due_in is not None
                )
            case Drain():
                owner.leases.drain()
                return None

    async def _claim(self, op: Claim, owner: Owner) -> object:
        session_id = self.sessions[op.session].id
        if not op.heard:
            self._deaf.add((owner.queue.owner_id, session_id))
        try:
            claim = await owner.queue.claim_next(session_id)
        finally:
            self._deaf.discard((owner.queue.owner_id, session_id))
        if claim is None:
            return None
        executor = self._claimed[op] = await Executor.of(claim)
        read = len(executor.transcript.messages)
        return (claim.run.session_seq, claim.run.claim_epoch, claim.run.resume_turn, read)

    async def _renew(self, owner: Owner, *, heard: bool) -> object:
        alive = owner.leases.renewable()
        if not alive:
            return ()
        renewal = await owner.queue.renew(alive)
        if heard:
            owner.leases.apply(renewal)
        return tuple(
            (
                index,
                executor.claim.key in renewal.renewed,
                executor.claim.key in renewal.lost,
                executor.claim.key in renewal.cancelled,
            )
            for index, executor in enumerate(self.executors)
            if executor.claim in alive
        )

    async def _write(self, op: Write, hold: Hold) -> object:
        executor = self.executors[op.hold]
        answer = await executor.write(op, hold)
        if isinstance(answer, RunState):
            self.owners[hold.owner].leases.remove(executor.claim.key)
        return answer
