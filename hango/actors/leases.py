"""The leases of this process: what it holds, how it keeps them, and who takes back lapsed ones.

Rule: authority is never assumed.  A claim's deadline moves only when the database has said so, and a
deadline that has passed stays passed, whatever an answer that came too late says.
"""

from __future__ import annotations

import logging
import math
from typing import Protocol
from uuid import UUID

import attrs
import trio

from hango.actors.actor import Inbox
from hango.errors import StoreUnavailable
from hango.store.claims import Claim, ClaimKey
from hango.store.queue import Renewal, RunQueue

_MOST_ENDED = 1000  # rings not heard yet; one that is forgotten costs a needless claim
_RETRY = 0.05  # of the heartbeat's interval: how soon a renewal that failed is tried again

_log = logging.getLogger(__name__)


class Executor(Protocol):
    """The actor that executes a claim, as far as its lease is concerned; an `Address` is one."""

    def interrupt(self, key: ClaimKey) -> bool:
        """Cut the execution short."""
        ...

    def extend(self, key: ClaimKey, deadline: float) -> None:
        """Let the execution go on until *deadline* (trio clock, seconds)."""
        ...


@attrs.frozen
class _Held:
    """A claim, and who executes it."""

    claim: Claim
    executor: Executor


@attrs.define(eq=False)
class Leases:
    """The claims this process executes: in when the claim's answer arrived, out once settled.

    Attributes:
        stopping: the drain's time is up, so whatever begins now is interrupted at once.
    """

    stopping: bool = False
    _held: dict[ClaimKey, _Held] = attrs.field(factory=dict, init=False)
    _ended: dict[UUID, None] = attrs.field(factory=dict, init=False)  # their ring is still to come
    _latest: float = attrs.field(default=math.inf, init=False)

    def add(self, claim: Claim, executor: Executor) -> None:
        """Keep *claim*, which *executor* is about to execute."""
        self._held[claim.key] = _Held(claim, executor)

    def remove(self, key: ClaimKey) -> None:
        """Keep a claim no longer: it is settled, or the lease is to lapse."""
        self._held.pop(key, None)

    def ended(self, run_id: UUID) -> None:
        """Take note that a run's end was written here: the doorbell that this rang is no news."""
        self._ended[run_id] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def is_own_ring(self, run_id: UUID) -> bool:
        """Tell whether a ring is the one that the end of a run rang which was written here; once."""
        return self._ended.pop(run_id, False) is None

    def executes(self, run_id: UUID) -> bool:
        """Tell whether a run is executed here."""
        return any(held_id == run_id for held_id, _ in self._held)

    def alive(self) -> list[Claim]:
        """Return the claims that still have authority; may be empty."""
        now = trio.current_time()
        claims = (held.claim for held in self._held.values())
        return [claim for claim in claims if not claim.lost and claim.deadline > now]

    def apply(self, renewal: Renewal) -> None:
        """Pass on what a heartbeat was told: more time, a loss of authority, a cancel."""
        for claim in self.alive():
            executor = self._held[claim.key].executor
            if claim.key in renewal.renewed:
                claim.deadline = min(renewal.renewed[claim.key], self._latest)
                executor.extend(claim.key, claim.deadline)
            claim.lost = claim.key in renewal.lost
            claim.cancelled = claim.cancelled or claim.key in renewal.cancelled
            if claim.lost or claim.cancelled:
                executor.interrupt(claim.key)

    def hand_over(self) -> None:
        """Let every run be released at its next turn boundary."""
        for held in self._held.values():
            held.claim.handing_over = True

    def stop(self, within: float) -> None:
        """Interrupt every run; what is to be written must be within *within* seconds."""
        self.stopping = True
        self._latest = trio.current_time() + within
        for key, held in self._held.items():
            held.claim.deadline = min(held.claim.deadline, self._latest)
            held.executor.interrupt(key)


@attrs.frozen
class Beat:
    """Renew now: something may have happened to a run that is executed here."""


async def heartbeat(inbox: Inbox[Beat], leases: Leases, queue: RunQueue, interval: float) -> None:
    """Renew all leases in one statement, every *interval* seconds, and when told to.

    A renewal that failed, or that found a row locked, is tried again soon: the claims' own deadlines
    decide when that has been too often.  Nothing is sent while nothing is held.
    """
    pause = interval
    while await _told_to_go_on(inbox, pause):
        pause = interval if await _beat(leases, queue) else interval * _RETRY


async def _beat(leases: Leases, queue: RunQueue) -> bool:
    """Renew once; return whether every lease is now known to be kept or lost."""
    asked = leases.alive()
    if not asked:
        return True
    try:
        renewal = await queue.renew(asked)
    except StoreUnavailable as error:
        _log.warning("%d leases could not be renewed: %s", len(asked), error)
        return False
    leases.apply(renewal)
    return all(claim.key in renewal.renewed or claim.key in renewal.lost for claim in asked)


@attrs.frozen
class Sweep:
    """Take back lapsed leases now."""


async def reclaim(inbox: Inbox[Sweep], queue: RunQueue, interval: float) -> None:
    """Take back every lapsed lease at once, then every *interval* seconds, and when told to."""
    await _sweep(queue)
    while await _told_to_go_on(inbox, interval):
        await _sweep(queue)


async def _sweep(queue: RunQueue) -> None:
    try:
        count = await queue.sweep()
    except StoreUnavailable as error:
        _log.warning("lapsed leases could not be looked for: %s", error)
    else:
        if count:
            _log.info("%d runs whose lease had lapsed were taken back", count)


async def _told_to_go_on(inbox: Inbox[Beat] | Inbox[Sweep], seconds: float) -> bool:
    """Wait for a message, *seconds* at most; return False when the actor is retired."""
    with trio.move_on_after(seconds):
        return await anext(inbox, None) is not None
    return True
