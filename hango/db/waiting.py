"""The line of those who wait for a connection: who is next.

Classes go one before the other; within a class the lowest place goes first.  A place is a number from
one counter, so work that comes back with the place it had goes before what came later.  No I/O.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import attrs
import trio

from hango.db.connections import PooledConnection, Urgency


@attrs.define(eq=False)
class Waiter:
    """A task that waits for a connection, and what it was given.

    Attributes:
        place: its place within its class.
        connection: what it was given; else *failure* says why it gets none.
        ready: set when it need not wait any longer.
    """

    place: int
    urgency: Urgency
    connection: PooledConnection | None = None
    failure: str = ""
    ready: trio.Event = attrs.field(factory=trio.Event)
    waiting: bool = True

    def __lt__(self, other: Waiter) -> bool:
        """Order by place."""
        return self.place < other.place


@attrs.define(eq=False)
class WaitingLine:
    """Those who wait, by class."""

    # heaps; who has left is skipped when its turn comes
    _classes: dict[Urgency, list[Waiter]] = attrs.field(
        init=False, factory=lambda: {urgency: [] for urgency in Urgency}
    )
    _length: dict[Urgency, int] = attrs.field(init=False, factory=lambda: dict.fromkeys(Urgency, 0))

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(self._length.values())

    def add(self, waiter: Waiter) -> None:
        """Take a place."""
        heapq.heappush(self._classes[waiter.urgency], waiter)
        self._length[waiter.urgency] += 1

    def discard(self, waiter: Waiter) -> None:
        """Leave the line; does nothing the second time."""
        if waiter.waiting:
            waiter.waiting = False
            self._length[waiter.urgency] -= 1

    def first(self, may_have: Callable[[Urgency], bool]) -> Waiter | None:
        """Return the first waiter whose class *may_have* a connection."""
        for urgency, waiters in self._classes.items():
            while waiters and not waiters[0].waiting:
                heapq.heappop(waiters)
            if waiters and may_have(urgency):
                return waiters[0]
        return None

    def demand(self, room: Callable[[Urgency], int]) -> int:
        """Return how many connections could be given out now; *room* bounds each class."""
        wanted, working = self._length[Urgency.HEARTBEAT], room(Urgency.EXECUTOR)
        executors = min(self._length[Urgency.EXECUTOR], working)
        others = min(self._length[Urgency.OTHER], room(Urgency.OTHER), working - executors)
        return wanted + max(executors, 0) + max(others, 0)

    def fail(self, reason: str) -> None:
        """Send all away, since there is nothing to wait for."""
        for waiters in self._classes.values():
            for waiter in waiters:
                if waiter.waiting:
                    self.discard(waiter)
                    waiter.failure = reason
                    waiter.ready.set()
            waiters.clear()
