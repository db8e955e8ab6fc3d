"""The doorbell: a connection of its own that LISTENs, and notices its own death.

A ring is a hint to look at the table, never data.  What was rung while nobody listened is lost, so
whoever opens this looks once after opening, and again when told that notifications were missed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import attrs
import trio
import trio_asyncio

from hango.db.connections import Connection, Connector, Traffic
from hango.db.failures import translate_errors
from hango.errors import StoreUnavailable

CHANNEL: Final = "hango"
_BUFFER = 1000  # notifications; more than that at once and looking at the table is cheaper anyway
_CHECK_EVERY = 30.0  # seconds of silence after which the connection is asked whether it lives
_CHECK_TIMEOUT = 5.0  # seconds


@attrs.frozen
class Notification:
    """Something changed about a run: its session may be claimable, or the run cancelled or ended."""

    session_id: UUID
    run_id: UUID
    tenant_id: UUID


@attrs.define(eq=False)
class Notifications:
    """The notifications as they come; iterate it.

    Yields a `Notification`, or None when some were missed because nobody took them.

    Raises:
        StoreUnavailable: the connection is dead; open another one, then look at the table.
    """

    _loop: trio_asyncio.TrioEventLoop
    _connection: Connection
    _send: trio.MemorySendChannel[Notification]
    _receive: trio.MemoryReceiveChannel[Notification]
    _traffic: Traffic
    _missed: bool = False
    _asking: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __aiter__(self) -> Notifications:
        """Iterate over this."""
        return self

    async def __anext__(self) -> Notification | None:
        """Wait for the next ring, making sure meanwhile that the line is not dead."""
        while True:
            if self._missed:
                self._missed = False
                return None
            with trio.move_on_after(_CHECK_EVERY):
                try:
                    return await self._receive.receive()
                except trio.EndOfChannel:
                    raise StoreUnavailable("the connection that listens was closed") from None
            await self.flush()

    async def flush(self) -> None:
        """Return when all that was rung before this call is here to be taken.

        The server sends what it has to tell before it answers.

        Raises:
            StoreUnavailable: the connection is dead.
        """
        async with self._asking:
            with self._traffic.track(), translate_errors(), trio.fail_after(_CHECK_TIMEOUT):
                await trio_asyncio.aio_as_trio(self._connection.execute, loop=self._loop)("select 1")

    def take(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        """Take a notification from asyncpg; one that is not ours is taken as a hint to look."""
        try:
            session_id, run_id, tenant_id = (UUID(part) for part in str(payload).split())
            self._send.send_nowait(Notification(session_id, run_id, tenant_id))
        except (ValueError, trio.WouldBlock):
            self._missed = True

    def end(self, _connection: object) -> None:
        """Tell the iteration that the connection is gone."""
        self._send.close()


@asynccontextmanager
async def open_notifications(
    loop: trio_asyncio.TrioEventLoop,
    connector: Connector,
    traffic: Traffic,
    connection: Connection | None = None,
) -> AsyncIterator[Notifications]:
    """LISTEN on a connection, a new one if none is given, and close it when the context is left.

    What it asks is counted in *traffic*.

    Raises:
        StoreUnavailable: no database.
    """
    if connection is None or connection.is_closed():
        with traffic.track(), translate_errors():
            connection = await trio_asyncio.aio_as_trio(connector.connect, loop=loop)()
    try:
        notifications = Notifications(
            loop, connection, *trio.open_memory_channel[Notification](_BUFFER), traffic
        )
        connection.add_termination_listener(notifications.end)
        with traffic.track(), translate_errors():
            await trio_asyncio.aio_as_trio(connection.add_listener, loop=loop)(
                CHANNEL, notifications.take
            )
        yield notifications
    finally:
        connection.terminate()
