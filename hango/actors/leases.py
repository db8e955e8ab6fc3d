"""The leases of this process: which it holds, how it renews them, and the sweep of lapsed ones.

Rule: authority is never assumed.  A claim goes on only as far as the database has said.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol
from uuid import UUID

import attrs
import trio

from hango.errors import StoreUnavailable
from hango.store.claims import Claim, ClaimKey
from hango.store.queue import Renewal, RunQueue
from hango.telemetry import metrics

INTERRUPT_GRACE = 10.0
"""Seconds that an interrupted execution has before its lease is no longer renewed."""

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
    """A claim, and the actor that executes it."""

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
    _epochs: dict[UUID, int] = attrs.field(factory=dict, init=False)  # of the runs executed here
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)  # of the heartbeat

    def add(self, claim: Claim, executor: Executor) -> None:
        """Keep *claim*, which *executor* is about to execute; its scope follows the lease."""
        self._held[claim.key] = _Held(claim, executor)
        self._epochs[claim.run.id] = claim.run.claim_epoch
        claim.lease.on_move = partial(executor.extend, claim.key)

    def remove(self, key: ClaimKey) -> None:
        """Keep a claim no longer: it is settled, or the lease is to lapse."""
        if self._held.pop(key, None) is not None and self._epochs.get(key[0]) == key[1]:
            del self._epochs[key[0]]

    def executes(self, run_id: UUID) -> bool:
        """Return whether a run is executed here."""
        return run_id in self._epochs

    def renewable(self) -> list[Claim]:
        """Return the claims that still have authority and may get more time; may be empty."""
        return [held.claim for held in self._held.values() if held.claim.lease.renewable]

    def apply(self, renewal: Renewal) -> None:
        """Pass on the answer to a heartbeat: more time, a loss of authority, a cancel."""
        for claim in self.renewable():
            if claim.key in renewal.renewed:
                metrics.lease_margin.record(claim.lease.left)
                claim.lease.renew(renewal.asked_at)
            if claim.key in renewal.lost:
                claim.lease.lose()
            if claim.key in renewal.cancelled and not claim.cancelled:
                claim.cancelled = True
                claim.lease.renew_until(trio.current_time() + INTERRUPT_GRACE)
            if claim.lease.lost or claim.cancelled:
                self._held[claim.key].executor.interrupt(claim.key)

    def drain(self) -> None:
        """Let every run be released at its next turn boundary."""
        for held in self._held.values():
            held.claim.draining = True

    def stop(self, within: float) -> None:
        """Interrupt every run; what is to be written must be within *within* seconds."""
        self.stopping = True
        for key, held in self._held.items():
            held.claim.lease.cap(trio.current_time() + within)
            held.executor.interrupt(key)

    def renew_soon(self) -> None:
        """Have the heartbeat renew now: something may have happened to a run that is executed here."""
        self._wake.set()

    async def wait_to_renew(self, seconds: float) -> None:
        """Return after *seconds*, or at once when `renew_soon` was called."""
        with trio.move_on_after(seconds):
            await self._wake.wait()
        self._wake = trio.Event()


async def heartbeat(leases: Leases, queue: RunQueue, interval: float) -> None:
    """Renew all leases in one statement, every *interval* seconds and when asked to, for ever.

    A renewal that failed, or that found a row locked, is tried again soon: the claims' own deadlines
    decide when that has been too often.  Nothing is sent while nothing is held.
    """
    pause = interval
    while True:
        await leases.wait_to_renew(pause)
        pause = interval if await _renew(leases, queue) else interval * _RETRY


async def _renew(leases: Leases, queue: RunQueue) -> bool:
    """Renew once; return whether every lease is now known to be kept or lost."""
    asked = leases.renewable()
    if not asked:
        return True
    try:
        renewal = await queue.renew(asked)
    except StoreUnavailable as error:
        _log.warning("%d leases could not be renewed: %s", len(asked), error)
        return False
    leases.apply(renewal)
    return all(claim.key in renewal.renewed or claim.key in renewal.lost for claim in asked)


async def sweep(queue: RunQueue, interval: float) -> None:
    """Take back every lapsed lease at once, then every *interval* seconds, for ever."""
    while True:
        try:
            count = await queue.sweep()
        except StoreUnavailable as error:
            _log.warning("the sweep of lapsed leases failed: %s", error)
        else:
            if count:
                _log.warning("runs whose lease had lapsed were taken back: %d", count)
        await trio.sleep(interval)
