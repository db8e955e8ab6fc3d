"""The supervisor: decides which sessions' runs this process executes, and when it stops.

Rule: nothing here is durable and nothing is assumed.  Doorbells are hints, looks at the table find what
was missed, and a claim in the database is what decides.  Used by ``hango.app``.

Nesting order is shutdown order: the heartbeat outlives the listener and the sweep, and these outlive
the sessions, so that a run is renewed, and its cancel heard, until it is settled.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, TypeVarTuple
from uuid import UUID

import attrs
import trio

from hango.actors.actor import Address, Inbox, Restart, spawn
from hango.actors.execution import Prepare
from hango.actors.leases import Beat, Leases, heartbeat, reclaim
from hango.actors.listener import listener
from hango.actors.ready_queue import Line
from hango.actors.session import RELEASE_GRACE, Execute, session
from hango.actors.settings import WorkerSettings
from hango.agent import EventSink
from hango.agent.ports import NULL_SINK
from hango.backoff import Backoff
from hango.db.notifications import Notification
from hango.db.pool import Pool
from hango.domain import Interrupted
from hango.errors import ActorStopped, InboxFull, StoreError, StoreUnavailable
from hango.store.claims import Claim
from hango.store.queue import RunQueue

_LOOK_LIMIT = 256  # heads: more than a process starts before it looks again, and one small answer
_FIRST_PAUSE = 0.05  # seconds before looking again after a claim or a look that came to nothing
_CLOCKS_DIFFER = 0.01  # seconds: do not wake before the database thinks that a head is due

M = TypeVar("M")
Args = TypeVarTuple("Args")

_log = logging.getLogger(__name__)


async def supervise(
    *,
    queue: RunQueue,
    pool: Pool,
    prepare: Prepare,
    settings: WorkerSettings,
    drain: trio.Event,
    events: EventSink = NULL_SINK,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Execute runs until *drain* is set; return when every run here is settled or handed over.

    Running turns have `WorkerSettings.drain_timeout` to finish; the rest is interrupted and released.
    Cancelled from outside, all runs are interrupted and released at once.

    Args:
        queue: the queue, under this process's own owner id.
        pool: the database whose doorbell is listened to.
        prepare: makes an agent loop of a claim, as `Workshop.prepare` does.
        settings: bounds and rhythms.
        drain: set by whoever wants this process to end.
        events: where the runs' progress is told.
        task_status: started when the first look is about to happen.

    Raises:
        ExceptionGroup: a permanent actor failed more often than it may; the process should end.
    """
    leases = Leases()
    async with trio.open_nursery() as outermost:
        heart = _permanent(outermost, heartbeat, leases, queue, settings.heartbeat_interval)
        async with trio.open_nursery() as middle:
            _permanent(middle, reclaim, queue, settings.reclaim_interval)
            async with trio.open_nursery() as sessions:
                supervisor = Supervisor(
                    queue, prepare, settings, events, drain, leases, heart, sessions
                )
                _permanent(middle, listener, pool, supervisor)
                task_status.started()
                await supervisor.run()
            middle.cancel_scope.cancel()
        outermost.cancel_scope.cancel()


def _permanent(
    nursery: trio.Nursery, actor: Callable[[Inbox[M], *Args], Awaitable[None]], *args: *Args
) -> Address[M]:
    """Spawn an actor that is to live as long as the process."""
    # one message waiting is enough: all of them are told "now"
    return spawn(nursery, actor, *args, name=actor.__name__, inbox_size=1, restart=Restart())


@attrs.define(eq=False)
class Supervisor:
    """Takes sessions from the line, claims, and tells the sessions' actors; see `supervise`."""

    _queue: RunQueue
    _prepare: Prepare
    _settings: WorkerSettings
    _events: EventSink
    _drain: trio.Event
    _leases: Leases
    _heart: Address[Beat]
    _sessions: trio.Nursery
    _line: Line = attrs.field(factory=Line, init=False)
    _actors: dict[UUID, Address[Execute]] = attrs.field(factory=dict, init=False)
    _after_look: Backoff = attrs.field(init=False)
    _after_claim: Backoff = attrs.field(init=False)
    _look_at: float = attrs.field(default=-math.inf, init=False)  # trio clock, seconds
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        """Look again soon after what came to nothing, and at the latest with the next poll."""
        self._after_look = Backoff(_FIRST_PAUSE, self._settings.poll_interval)
        self._after_claim = Backoff(_FIRST_PAUSE, self._settings.poll_interval)

    async def run(self) -> None:
        """Serve until told to drain, then hand over."""
        with trio.CancelScope() as serving:
            self._sessions.start_soon(_cancel_at, self._drain, serving, name="drain")
            await self._serve()
        await self._hand_over()

    # --- what others tell it ------------------------------------------------------------------

    def rung(self, ring: Notification) -> None:
        """Take a doorbell: a session may have a run to claim, or a run here may be cancelled."""
        if self._leases.executes(ring.run_id):
            self._beat()
        elif not self._leases.is_own_ring(ring.run_id):  # after our own, the free slot looks anyway
            self._line.add(ring.session_id)
            self._changed.set()

    def rings_missed(self) -> None:
        """Look at the table, and hear of cancels."""
        self.look_soon()
        self._beat()

    def look_soon(self, after: float = 0.0) -> None:
        """Look at the table in *after* seconds, if not sooner anyway."""
        self._look_at = min(self._look_at, trio.current_time() + after)
        self._changed.set()

    def _beat(self) -> None:
        with suppress(InboxFull, ActorStopped):  # then a beat is due anyway
            self._heart.tell(Beat())

    # --- serving ------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            if self._look_at <= trio.current_time():
                await self._look()
            while self._free and (session_id := self._line.take()) is not None:
                self._sessions.start_soon(self._claim, session_id, name=f"claim {session_id}")
            with trio.move_on_at(self._look_at):
                await self._changed.wait()
            self._changed = trio.Event()

    @property
    def _free(self) -> int:
        """Runs this process could execute besides those it does."""
        return self._settings.workers - self._line.serving

    async def _look(self) -> None:
        """Bring the line up to what the table says; nothing to do while there is no free slot."""
        asked_at = trio.current_time()
        self._look_at = asked_at + self._settings.poll_interval
        if not self._free:
            return
        waited = self._line.waiting()
        try:
            look = await self._queue.look(_LOOK_LIMIT)
        except StoreUnavailable as error:
            _log.warning("the queue could not be looked at: %s", error)
            self.look_soon(self._after_look.pause())
            return
        self._after_look.reset()
        self._line.arrange(look.heads, waited)
        for session_id in self._queue.unanswered:
            self._line.add(session_id)  # the next claim there gives back what it finds to be ours
        if look.wake_in is not None:
            due = asked_at + look.wake_in - trio.current_time()
            self.look_soon(max(due, 0.0) + _CLOCKS_DIFFER)

    async def _claim(self, session_id: UUID) -> None:
        """Try to claim a session's head, and have it executed."""
        claim = None if self._drain.is_set() else await self._try_to_claim(session_id)
        if claim is None:
            self._line.done(session_id)
            self.look_soon(self._after_claim.pause())
        elif self._drain.is_set() or not self._tell(claim):
            await self._release(claim)
        else:
            self._after_claim.reset()

    async def _try_to_claim(self, session_id: UUID) -> Claim | None:
        try:
            return await self._queue.claim_next(session_id)
        except StoreUnavailable as error:
            _log.warning("a claim could not be made: %s", error)
        except Exception:  # noqa: BLE001 - the border of what one session's row can do to others
            _log.exception("a claim failed; if it was made all the same, its lease will lapse")
        return None

    def _tell(self, claim: Claim) -> bool:
        """Give *claim* to its session's actor; False if there is none that takes it."""
        session_id = claim.run.session_id
        message = Execute(claim, partial(self._settled, session_id))
        for _ in range(2):  # an actor found may have just ended; one just made takes it
            address = self._actors.get(session_id) or self._spawn(session_id)
            try:
                address.tell(message)
            except ActorStopped:
                self._actors.pop(session_id, None)
            except InboxFull:
                return False
            else:
                self._leases.add(claim, address)
                if self._line.rung_meanwhile(session_id):
                    self._beat()  # a cancel may have come before anybody knew who executes the run
                return True
        return False

    def _spawn(self, session_id: UUID) -> Address[Execute]:
        async def live(inbox: Inbox[Execute]) -> None:
            try:
                await session(inbox, self._prepare, self._leases, self._events)
            finally:
                if self._actors.get(session_id) is address:
                    del self._actors[session_id]

        address = spawn(
            self._sessions,
            live,
            name=f"session {session_id}",
            inbox_size=1,  # no claim is made while another is being executed
            idle=self._settings.session_idle_timeout,
        )
        self._actors[session_id] = address
        return address

    def _settled(self, session_id: UUID) -> None:
        """Free the slot; who waits for it is in the table."""
        self._line.done(session_id)
        self.look_soon()

    async def _release(self, claim: Claim) -> None:
        """Give back a claim that nobody here will execute."""
        claim.deadline = min(claim.deadline, trio.current_time() + RELEASE_GRACE)
        try:
            with trio.CancelScope(shield=True, deadline=claim.deadline):
                await claim.settle(Interrupted())
        except StoreError as error:
            _log.warning("a claim could not be given back, its lease will lapse: %s", error)
        finally:
            self._settled(claim.run.session_id)

    # --- the end ------------------------------------------------------------------------------

    async def _hand_over(self) -> None:
        """Let running turns finish while there is time, interrupt the rest, end all actors."""
        self._leases.hand_over()
        with trio.move_on_after(self._settings.drain_timeout):
            await self._all_settled()
        if self._line.serving:
            _log.warning("%d runs did not finish their turn in time", self._line.serving)
            self._leases.stop(RELEASE_GRACE)
            await self._all_settled()
        for address in self._actors.values():
            address.retire()
        try:
            await self._queue.give_back_unanswered()
        except StoreUnavailable as error:
            _log.warning("claims without an answer could not be given back: %s", error)

    async def _all_settled(self) -> None:
        while self._line.serving:
            self._changed = trio.Event()
            await self._changed.wait()


async def _cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
