"""Finding out what a connection's silence means: a slow statement, or a connection that is dead.

A proxy or a firewall may forget an open connection without a word; nothing ever arrives over it again.
So when a statement has no answer for some time, the server is asked over a new connection whether it
works on it.  If not, that connection is ended, and with it all that have not answered since.

Rule: only the server's word ends a connection here.  While it cannot be asked, or does not know, the
statement has until its deadline.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

import attrs
import trio

from hango.db.checkout import Connections
from hango.db.connections import Connection, PooledConnection
from hango.db.failures import AWAY
from hango.errors import StoreUnavailable

SILENCE = 2.0
"""Seconds without an answer after which the server is asked; most statements take milliseconds."""

LOOK_EVERY = 1.0
"""Seconds between two looks, while statements are under way."""

_ASK_TIMEOUT = 2.0  # seconds

# It works on something, or has stopped so recently that the answer may be on its way; or it cannot be
# told, since another role's backend has no state.
_AT_WORK = """
select pid
  from pg_stat_activity
 where pid = any($1::int[])
   and (state is null or state not like 'idle%' or clock_timestamp() < state_change + interval '1s')
"""

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class SilenceWatch:
    """Watches statements that are under way, and asks one question at a time."""

    _connections: Connections
    _alarm: trio.CancelScope = attrs.field(
        factory=trio.CancelScope, init=False
    )  # ends at the next look

    def begin(self) -> None:
        """Begin to look, now that a statement is under way; does nothing if it looks already."""
        if self._alarm.deadline == math.inf:
            self._alarm.deadline = trio.current_time() + LOOK_EVERY

    def rest(self) -> None:
        """Stop looking: no statement is under way."""
        self._alarm.deadline = math.inf

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            with trio.CancelScope() as self._alarm:
                if self._connections.busy():
                    self.begin()
                await trio.sleep_forever()
            if silent := [held for held in self._connections.busy() if _is_silent(held)]:
                await self._judge(silent)

    async def _judge(self, silent: Sequence[PooledConnection]) -> None:
        """Ask the server about connections, and end those it does not work for."""
        connections = self._connections
        asked_about = [(held, held.sent_at, held.connection.get_server_pid()) for held in silent]
        for held in silent:
            held.silent_since = time.monotonic()
        try:
            connection = await connections.loop.run_aio_coroutine(connections.connector.connect())
        except StoreUnavailable:
            return  # the server, and not one connection, is the trouble
        at_work = await self._at_work(connection, [pid for _, _, pid in asked_about])
        busy = connections.busy()
        dead = [
            held
            for held, sent_at, pid in asked_about
            if pid not in at_work and held in busy and held.sent_at == sent_at
        ]
        if not dead:
            connection.terminate()
            return
        for held in dead:
            connections.convict(held.sent_at)
        connections.adopt(connection)
        for held in dead:
            held.connection.terminate()  # the task that waits for its answer gets an error

    async def _at_work(self, connection: Connection, pids: list[int]) -> set[int]:
        """Return which backends work; all of them, when the server does not say."""
        loop = self._connections.loop
        try:
            found = await loop.run_aio_coroutine(connection.fetch(_AT_WORK, pids, timeout=_ASK_TIMEOUT))
        except AWAY as error:
            _log.warning("the database could not be asked about silent connections: %r", error)
            return set(pids)
        return {row["pid"] for row in found}


def _is_silent(held: PooledConnection) -> bool:
    return time.monotonic() > held.silent_since + SILENCE
