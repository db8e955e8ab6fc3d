"""The listener: passes Postgres notifications to the supervisor, and reconnects when it is cut off.

Rule: notifications sent while nothing listened are lost, so the handler is told after every LISTEN that
it may have missed some.
"""

from __future__ import annotations

import logging
from typing import Protocol
from uuid import UUID

import attrs
import trio

from hango.backoff import Backoff
from hango.db.notifications import Notification
from hango.db.pool import Pool
from hango.errors import StoreUnavailable

_FIRST_PAUSE = 0.1  # seconds; a connection that was cut is back at once
_LONGEST_PAUSE = 5.0  # seconds; the poll comes as often
_MAX_EXPECTED = 1000  # notifications; one that is forgotten costs a needless claim

_log = logging.getLogger(__name__)


class NotificationHandler(Protocol):
    """What the notifications are for; no method blocks."""

    def on_notification(self, notification: Notification) -> None:
        """Act on one notification."""
        ...

    def on_cut_off(self) -> None:
        """Notifications are not received until `on_missed` is called."""
        ...

    def on_missed(self) -> None:
        """Notifications may have been missed: poll for runs to claim, and for cancels."""
        ...


async def listen(pool: Pool, handler: NotificationHandler) -> None:
    """Pass on notifications for ever; a database that is away is not an error."""
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            async with pool.listen() as notifications:
                handler.on_missed()
                backoff.reset()
                async for notification in notifications:
                    if notification is None:
                        handler.on_missed()
                    else:
                        handler.on_notification(notification)
        except StoreUnavailable as error:
            handler.on_cut_off()
            _log.warning("notifications cannot be received: %s", error)
        await trio.sleep(backoff.pause())


@attrs.define(eq=False)
class OwnNotifications:
    """The notifications that this process causes itself by settling runs: they are no news to it."""

    _expected: dict[UUID, None] = attrs.field(factory=dict, init=False)  # by run, oldest first

    def expect(self, run_id: UUID) -> None:
        """Expect one of this run: before the settle is sent, since its notification may come first."""
        self._expected[run_id] = None
        if len(self._expected) > _MAX_EXPECTED:
            del self._expected[next(iter(self._expected))]

    def forget(self, run_id: UUID) -> None:
        """Expect none of this run any more: its settle came to nothing."""
        self._expected.pop(run_id, None)

    def take(self, run_id: UUID) -> bool:
        """Return True, once, if a notification of this run was expected."""
        return self._expected.pop(run_id, False) is None
