"""The supervisor: decides which sessions' runs this process executes, and when it stops.

Rule: nothing here is durable and nothing is assumed.  Notifications are hints, polls of the table find
what was missed, and a claim in the database is what decides.  Used by ``hango.app``.

Nesting order is shutdown order: the heartbeat outlives the listener and the sweep, and these outlive
the sessions, so that a run is renewed, and its cancel received, until it is settled.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

import attrs
import trio

from hango.actors.actor import Address, Inbox, Restart, restarted, spawn
from hango.actors.execution import Build
from hango.actors.leases import Leases, heartbeat, sweep
from hango.actors.listener import OwnNotifications, listen
from hango.actors.ready_queue import Ready, ReadyQueue
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
from hango.telemetry import metrics

_POLL_LIMIT = 256  # heads: one small answer; a full one is followed by another while slots are free
_FIRST_PAUSE = 0.05  # seconds before polling again after a claim or a poll that came to nothing
_CLOCKS_DIFFER = 0.01  # seconds: do not wake before the database thinks that a head is due

_log = logging.getLogger(__name__)


async def supervise(
    *,
    queue: RunQueue,
    pool: Pool,
    build: Build,
    settings: WorkerSettings,
    drain: trio.Event,
    events: EventSink = NULL_SINK,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Execute runs until *drain* is set; return when every run here is settled or released.

    Running turns have `WorkerSettings.drain_timeout` to finish; the rest is interrupted and released.
    Cancelled from outside, all runs are interrupted and their leases ended: the next sweep takes them
    back, and counts them, since a process does not end that way unless something is wrong.

    Args:
        queue: the queue, under this process's own owner id.
        pool: the database whose notifications are received.
        build: makes an agent loop of a claim, as `ExecutionBuilder.build` does.
        settings: bounds and intervals.
        drain: set by the caller to end.
        events: takes the progress of the runs.
        task_status: started when the first poll is about to happen.

    Raises:
        ExceptionGroup: a permanent loop failed more often than it may; the process should end.
    """
    leases, own = Leases(), OwnNotifications()
    async with trio.open_nursery() as outermost:
        beat = partial(heartbeat, leases, queue, settings.heartbeat_interval)
        _keep_running(outermost, "heartbeat", beat)
        async with trio.open_nursery() as middle:
            _keep_running(middle, "sweep", partial(sweep, queue, settings.reclaim_interval))
            async with trio.open_nursery() as sessions:
                supervisor = Supervisor(queue, build, settings, events, drain, leases, own, sessions)
                _keep_running(middle, "listener", partial(listen, pool, supervisor))
                task_status.started()
                await supervisor.run()
            middle.cancel_scope.cancel()
        outermost.cancel_scope.cancel()


def _keep_running(nursery: trio.Nursery, name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Start a loop that is to live as long as the process."""
    start = partial(restarted, loop, name=name, restart=Restart())
    nursery.start_soon(start, name=name)


@attrs.define(eq=False)
class Supervisor:
    """Polls, claims, and hands claims to the sessions' actors; see `supervise`."""

    _queue: RunQueue
    _build: Build
    _settings: WorkerSettings
    _events: EventSink
    _drain: trio.Event  # set by the caller: claim nothing more
    _leases: Leases  # of the claims executed here, shared with the heartbeat
    _own: OwnNotifications  # those that this process's own settles cause
    _sessions: trio.Nursery  # of the sessions' actors
    _ready: ReadyQueue = attrs.field(factory=ReadyQueue, init=False)
    _actors: dict[UUID, Address[Execute]] = attrs.field(factory=dict, init=False)  # by session
    # whose claim may have been made although no answer came
    _unconfirmed: list[Ready] = attrs.field(factory=list, init=False)
    _after_poll: Backoff = attrs.field(init=False)  # pauses after polls that failed
    _after_claim: Backoff = attrs.field(init=False)  # pauses after claims that returned nothing
    _poll_at: float = attrs.field(default=-math.inf, init=False)  # when to poll next (trio clock)
    _listening: bool = attrs.field(default=False, init=False)  # what is queued now is notified
    _all_known: bool = attrs.field(default=False, init=False)  # the last poll found all there was
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)  # wakes `_serve`

    def __attrs_post_init__(self) -> None:
        """Pause no longer than until the next poll is due anyway."""
        self._after_poll = Backoff(_FIRST_PAUSE, self._settings.poll_interval)
        self._after_claim = Backoff(_FIRST_PAUSE, self._settings.poll_interval)

    async def run(self) -> None:
        """Serve until told to drain, then drain."""
        with trio.CancelScope() as serving:
            self._sessions.start_soon(_cancel_when, self._drain, serving, name="drain")
            await self._serve()
        await self._drain_runs()

    # --- called by the listener ----------------------------------------------------------------

    def on_notification(self, notification: Notification) -> None:
        """A session may have a run to claim, or a run here may have been cancelled."""
        if self._own.take(notification.run_id):
            return  # `_free_slot` goes on with what comes next
        if self._leases.executes(notification.run_id):
            self._leases.renew_soon()  # its answer reports cancels
            return
        self._ready.add(Ready(notification.tenant_id, notification.session_id))
        self._changed.set()

    def on_cut_off(self) -> None:
        """Poll whenever a slot is free, until notifications are received again."""
        self._listening = False

    def on_missed(self) -> None:
        """Poll for runs to claim, and have the heartbeat report cancels."""
        self._listening = True
        self.poll_soon()
        self._leases.renew_soon()

    def poll_soon(self, after: float = 0.0) -> None:
        """Poll in *after* seconds, if not sooner anyway."""
        self._poll_at = min(self._poll_at, trio.current_time() + after)
        self._changed.set()

    # --- serving -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            if self._poll_at <= trio.current_time():
                await self._poll()
            while self._free_slots and (ready := self._ready.pop()) is not None:
                self._sessions.start_soon(self._claim, ready, name=f"claim {ready.session_id}")
            with trio.move_on_at(self._poll_at):
                await self._changed.wait()
            self._changed = trio.Event()

    @property
    def _free_slots(self) -> int:
        """Runs this process could execute besides those it does."""
        return self._settings.workers - self._ready.in_progress

    async def _poll(self) -> None:
        """Bring the ready queue up to what the table says; not while there is no free slot."""
        asked_at = trio.current_time()
        self._poll_at, self._all_known = asked_at + self._settings.poll_interval, False
        if not self._free_slots:
            return
        before = self._ready.ready()
        try:
            found = await self._queue.poll(_POLL_LIMIT)
        except StoreUnavailable as error:
            _log.warning("the queue could not be polled: %s", error)
            self.poll_soon(self._after_poll.pause())
            return
        except Exception:  # noqa: BLE001 - a table that is being altered is back in a moment
            _log.exception("a poll of the queue failed and is tried again")
            self.poll_soon(self._after_poll.pause())
            return
        self._after_poll.reset()
        self._all_known = len(found.heads) < _POLL_LIMIT and not self._queue.max_running
        self._ready.reorder([Ready(*head) for head in found.heads], before)
        self._unconfirmed = [it for it in self._unconfirmed if it.session_id in self._queue.unconfirmed]
        for ready in self._unconfirmed:
            self._ready.add(ready)  # the next claim there releases what may have been claimed
        if len(found.heads) >= _POLL_LIMIT and self._free_slots > len(found.heads):
            self.poll_soon(_FIRST_PAUSE)  # once these are in progress, there may be more
        if found.next_due_in is not None:
            due = asked_at + found.next_due_in - trio.current_time()
            self.poll_soon(max(due, 0.0) + _CLOCKS_DIFFER)

    async def _claim(self, ready: Ready) -> None:
        """Try to claim a session's head, and have it executed."""
        claim = None if self._drain.is_set() else await self._try_to_claim(ready.session_id)
        if claim is None:
            self._all_known = False
            if ready.session_id in self._queue.unconfirmed and ready not in self._unconfirmed:
                self._unconfirmed.append(ready)
            self._ready.release(ready.session_id)
            self.poll_soon(self._after_claim.pause())
        elif self._drain.is_set() or _is_cancelled() or not self._hand_to_actor(claim):
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

    def _hand_to_actor(self, claim: Claim) -> bool:
        """Give *claim* to its session's actor; False if there is none that takes it."""
        session_id = claim.run.session_id
        message = Execute(claim, partial(self._free_slot, claim))
        for _ in range(2):  # an actor found may have just ended; one just spawned takes it
            address = self._actors.get(session_id) or self._spawn_actor(session_id)
            try:
                address.tell(message)
            except ActorStopped:
                self._actors.pop(session_id, None)
            except InboxFull:
                return False
            else:
                self._leases.add(claim, address)
                if self._ready.notified_again(session_id):
                    self._leases.renew_soon()  # a cancel may have come before it was in `leases`
                return True
        return False

    def _spawn_actor(self, session_id: UUID) -> Address[Execute]:
        async def live(inbox: Inbox[Execute]) -> None:
            try:
                await session(inbox, self._build, self._leases, self._own, self._events)
            finally:
                if self._actors.get(session_id) is address:
                    del self._actors[session_id]
                metrics.actors_alive.set(len(self._actors))

        address = spawn(
            self._sessions,
            live,
            name=f"session {session_id}",
            inbox_size=1,  # no claim is made while another is being executed
            idle=self._settings.session_idle_timeout,
        )
        self._actors[session_id] = address
        metrics.actors_alive.set(len(self._actors))
        return address

    def _free_slot(self, claim: Claim, *, ended: bool = False) -> None:
        """End what the session has in progress, and poll for who takes the slot if that is not known.

        It is known when the run has *ended* and nothing else waits here: then all that can be claimed
        is the session's next run, or is notified.  A session that waits may have been served by another
        process meanwhile, so that it is asked for first.
        """
        known = ended and self._listening and self._all_known and not self._ready.ready()
        if claim.more_in_line:
            self._ready.add(Ready(claim.run.tenant_id, claim.run.session_id))
        self._ready.release(claim.run.session_id)
        if known:
            self._changed.set()
        else:
            self.poll_soon()

    async def _release(self, claim: Claim) -> None:
        """Release a claim that nothing here will execute."""
        claim.lease.cap(trio.current_time() + RELEASE_GRACE)
        try:
            with trio.CancelScope(shield=True, deadline=claim.lease.deadline):
                await claim.settle(Interrupted())
        except StoreError as error:
            _log.warning("a claim could not be released, its lease will lapse: %s", error)
        finally:
            self._free_slot(claim)

    # --- the end -------------------------------------------------------------------------------

    async def _drain_runs(self) -> None:
        """Let running turns finish while there is time, interrupt the rest, end all actors."""
        self._leases.drain()
        with trio.move_on_after(self._settings.drain_timeout):
            await self._wait_until_settled()
        if self._ready.in_progress:
            _log.warning("%d runs did not finish their turn in time", self._ready.in_progress)
            self._leases.stop(RELEASE_GRACE)
            await self._wait_until_settled()
        for address in self._actors.values():
            address.close()
        try:
            await self._queue.release_unconfirmed()
        except StoreUnavailable as error:
            _log.warning("unconfirmed claims could not be released: %s", error)

    async def _wait_until_settled(self) -> None:
        while self._ready.in_progress:
            self._changed = trio.Event()
            await self._changed.wait()


def _is_cancelled() -> bool:
    return trio.current_effective_deadline() == -math.inf


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
