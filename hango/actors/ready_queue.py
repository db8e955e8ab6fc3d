"""The ready queue: which sessions to try to claim a run of next, and which are in progress.

Rule: a hint, never the truth.  It forgets freely, since a poll of the table finds what matters; what it
must not do is to try a session that is in progress, or to let one tenant crowd out the others.  Pure;
used by the supervisor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

import attrs

# Sessions of one tenant, and tenants; what is notified beyond that a poll finds once there is room.
_MAX_SESSIONS = 1000
_MAX_TENANTS = 1000


@attrs.frozen
class Ready:
    """A session that may have a run to claim."""

    tenant_id: UUID
    session_id: UUID


@attrs.define
class ReadyQueue:
    """Sessions that may have a run to claim, each at most once.

    Tenants take turns: the next session is of the tenant that has the fewest in progress here, and of
    those the one served least recently.  Within a tenant it is first come, first served.
    """

    # by tenant; its sessions in the order to serve them
    _ready: dict[UUID, dict[UUID, None]] = attrs.field(factory=dict, init=False)
    # by tenant, the number of the turn in which it was last served
    _turns: dict[UUID, int] = attrs.field(factory=dict, init=False)
    _turn: int = attrs.field(default=0, init=False)  # how often any tenant was served
    # by session; with the tenant, and whether it was notified since
    _in_progress: dict[UUID, tuple[UUID, bool]] = attrs.field(factory=dict, init=False)
    _running: Counter[UUID] = attrs.field(factory=Counter, init=False)  # in progress, by tenant
    _served: set[UUID] = attrs.field(factory=set, init=False)  # sessions, since the last poll

    @property
    def in_progress(self) -> int:
        """How many sessions are in progress."""
        return len(self._in_progress)

    def ready(self) -> Collection[UUID]:
        """Return the sessions that wait, in no particular order."""
        return {session_id for sessions in self._ready.values() for session_id in sessions}

    def add(self, ready: Ready) -> None:
        """Put a session behind its tenant's others; one in progress comes back when that is over."""
        if ready.session_id in self._in_progress:
            self._in_progress[ready.session_id] = (ready.tenant_id, True)
            return
        if ready.tenant_id not in self._ready and len(self._ready) >= _MAX_TENANTS:
            return
        sessions = self._ready.setdefault(ready.tenant_id, {})
        if len(sessions) < _MAX_SESSIONS:
            sessions[ready.session_id] = None

    def pop(self) -> Ready | None:
        """Take the next session, which is in progress from now on; None when none waits."""
        if not self._ready:
            return None
        tenant_id = min(
            self._ready, key=lambda tenant: (self._running[tenant], self._turns.get(tenant, 0))
        )
        sessions = self._ready[tenant_id]
        session_id = next(iter(sessions))
        del sessions[session_id]
        if not sessions:
            del self._ready[tenant_id]
        self._turn += 1
        self._turns[tenant_id] = self._turn
        self._in_progress[session_id] = (tenant_id, False)
        self._running[tenant_id] += 1
        return Ready(tenant_id, session_id)

    def notified_again(self, session_id: UUID) -> bool:
        """Return whether a session was added again while it is in progress."""
        return self._in_progress.get(session_id, (None, False))[1]

    def release(self, session_id: UUID) -> None:
        """End what a session has in progress; it goes behind its tenant's others."""
        tenant_id, again = self._in_progress.pop(session_id)
        self._running[tenant_id] -= 1
        if not self._running[tenant_id]:
            del self._running[tenant_id]
        self._served.add(session_id)
        if again:
            self.add(Ready(tenant_id, session_id))

    def reorder(self, heads: Sequence[Ready], before: Collection[UUID]) -> None:
        """Bring the queue up to what a poll found.

        Sessions that waited and have nothing to claim are dropped.  Within a tenant the order is that
        of the poll, then come those notified during the poll; those just served go last.

        Args:
            heads: sessions with a run to claim, a tenant's own in the order to serve them.
            before: the sessions that waited when the poll began.
        """
        claimable = {head.session_id for head in heads}
        late = [
            Ready(tenant_id, session_id)
            for tenant_id, sessions in self._ready.items()
            for session_id in sessions
            if session_id not in before and session_id not in claimable
        ]
        order = sorted([*heads, *late], key=lambda ready: ready.session_id in self._served)
        self._ready.clear()
        self._served.clear()
        for ready in order:
            self.add(ready)
        live = self._ready.keys() | self._running.keys()
        self._turns = {tenant_id: turn for tenant_id, turn in self._turns.items() if tenant_id in live}
