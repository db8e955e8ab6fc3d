"""The lease of one claim: until when this process may work on the run, and whether it still may.

Rule: this object alone moves its deadline, and only when the database has renewed the lease.  A
deadline that has passed stays passed, whatever an answer that came too late says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from uuid import UUID

import attrs
import trio

MARGIN = 0.1
"""The part of a lease that is not used: clocks and schedulers differ, and owners must not overlap."""


@attrs.define(eq=False)
class Lease:
    """What a claim holds: the fencing token, and time.

    Attributes:
        owner_id: the process that claimed the run.
        epoch: of the claim; together with *owner_id* what every write is fenced by.
        ttl: seconds that the database grants at each renewal.
        on_move: called with each new deadline, so that the scope of the work follows it.
    """

    owner_id: UUID | None
    epoch: int
    ttl: float
    _deadline: float
    _lost: bool = attrs.field(default=False, init=False)
    _latest: float = attrs.field(default=math.inf, init=False)  # no renewal gives more time than this
    _renew_until: float = attrs.field(default=math.inf, init=False)  # nothing is renewed from then on
    on_move: Callable[[float], None] | None = attrs.field(default=None, init=False)

    @classmethod
    def granted(cls, owner_id: UUID | None, epoch: int, *, ttl: float, asked_at: float) -> Lease:
        """Return the lease of a claim that was asked for at *asked_at* (trio clock, seconds)."""
        return cls(owner_id, epoch, ttl, _usable_until(asked_at, ttl))

    @property
    def deadline(self) -> float:
        """When to have stopped (trio clock, seconds)."""
        return self._deadline

    @property
    def lost(self) -> bool:
        """Whether authority is gone; nothing more is written then."""
        return self._lost

    @property
    def left(self) -> float:
        """Seconds until the deadline; 0 once it has passed or authority is gone."""
        return 0.0 if self._lost else max(self._deadline - trio.current_time(), 0.0)

    def renew(self, asked_at: float) -> None:
        """Take note that the database renewed the lease; counts from before the request was sent.

        Changes nothing once the deadline has passed or authority is gone.

        Args:
            asked_at: when the request was about to be sent (trio clock, seconds).
        """
        if self.left:
            self._move(max(self._deadline, _usable_until(asked_at, self.ttl)))

    def cap(self, at: float) -> None:
        """End the lease by *at* (trio clock, seconds), whatever is renewed from now on."""
        self._latest = min(self._latest, at)
        self._move(self._deadline)

    @property
    def renewable(self) -> bool:
        """Whether there is authority left, and it may be prolonged."""
        return self.left > 0 and trio.current_time() < self._renew_until

    def renew_until(self, at: float) -> None:
        """Renew the lease no more from *at* on (trio clock, seconds): then it lapses by itself.

        For an execution that is to end: one that ignores it is taken over once its lease has lapsed.
        """
        self._renew_until = min(self._renew_until, at)

    def lose(self) -> None:
        """Take note that the run is no longer this claim's."""
        self._lost = True

    def _move(self, deadline: float) -> None:
        self._deadline = min(deadline, self._latest)
        if self.on_move is not None:
            self.on_move(self._deadline)


def _usable_until(asked_at: float, ttl: float) -> float:
    return asked_at + ttl * (1 - MARGIN)
