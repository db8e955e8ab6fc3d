"""The doorbell's ear: passes rings on, and comes back whenever its connection dies.

Rule: what was rung while nobody listened is lost, so whoever is told of rings is also told to look at
the table after every LISTEN.  A database that is away is no failure of this actor.
"""

from __future__ import annotations

import logging
from typing import Protocol

import trio

from hango.actors.actor import Inbox
from hango.backoff import Backoff
from hango.db.notifications import Notification
from hango.db.pool import Pool
from hango.errors import StoreUnavailable

_FIRST_PAUSE = 0.1  # seconds; a connection that was cut is back at once
_LONGEST_PAUSE = 5.0  # seconds; the poll looks as often

_log = logging.getLogger(__name__)


class Hears(Protocol):
    """Who is told; neither method blocks."""

    def rung(self, ring: Notification) -> None:
        """Take a ring."""
        ...

    def rings_missed(self) -> None:
        """Find out what rings would have told: of runs to claim, and of cancels."""
        ...


async def listener(_: Inbox[object], pool: Pool, ears: Hears) -> None:
    """Listen for ever."""
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            async with pool.listen() as rings:
                ears.rings_missed()
                backoff.reset()
                async for ring in rings:
                    ears.rings_missed() if ring is None else ears.rung(ring)
        except StoreUnavailable as error:
            _log.warning("the doorbell is not heard: %s", error)
        await trio.sleep(backoff.pause())
