"""The line: which sessions to try to claim a run of next, and which are being served.

Rule: a hint, never the truth.  It forgets freely, since a look at the table brings back what matters;
what it must not do is to try a session that is being served, or to let one crowd out the others.
Pure; used by the supervisor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import attrs

# Sessions; what rings beyond that is found by a look once there is room.
_LONGEST = 1000


@attrs.define
class Line:
    """Sessions that may have a run to claim, first come first served, each at most once."""

    _waiting: dict[UUID, None] = attrs.field(factory=dict, init=False)
    _serving: dict[UUID, bool] = attrs.field(factory=dict, init=False)  # rung meanwhile?
    _served: set[UUID] = attrs.field(factory=set, init=False)  # since the last look

    @property
    def serving(self) -> int:
        """How many sessions are being served."""
        return len(self._serving)

    def waiting(self) -> Collection[UUID]:
        """Return who waits, first to be served first."""
        return tuple(self._waiting)

    def add(self, session_id: UUID) -> None:
        """Put a session at the end; one that is being served comes back when that is over."""
        if session_id in self._serving:
            self._serving[session_id] = True
        elif len(self._waiting) < _LONGEST:
            self._waiting[session_id] = None

    def take(self) -> UUID | None:
        """Take the first to serve it; None when nobody waits."""
        for session_id in self._waiting:
            del self._waiting[session_id]
            self._serving[session_id] = False
            return session_id
        return None

    def rung_meanwhile(self, session_id: UUID) -> bool:
        """Tell whether a session was added again while it is being served."""
        return self._serving.get(session_id, False)

    def done(self, session_id: UUID) -> None:
        """End serving a session; it goes behind all others."""
        again = self._serving.pop(session_id)
        self._served.add(session_id)
        if again:
            self.add(session_id)

    def arrange(self, heads: Sequence[UUID], waited: Collection[UUID]) -> None:
        """Bring the line up to what a look saw.

        Those who waited and have something keep their place, then come the others that have, then
        those that were rung during the look.  Those just served go behind all of them.

        Args:
            heads: sessions with a run to claim, in the order to serve them.
            waited: who waited when the look began.
        """
        claimable, before = dict.fromkeys(heads), set(waited)
        order = [session_id for session_id in self._waiting if session_id in claimable]
        order += [session_id for session_id in claimable if session_id not in self._waiting]
        order += [session_id for session_id in self._waiting if session_id not in before]
        order.sort(key=lambda session_id: session_id in self._served)
        self._waiting.clear()
        self._served.clear()
        for session_id in order:
            self.add(session_id)
