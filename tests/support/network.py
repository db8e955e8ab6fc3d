"""A network between a test and its Postgres, which can forget connections as a firewall does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from hango.db.url import DatabaseUrl
from hango.db.url.endpoints import Endpoint


@attrs.define(eq=False)
class Network:
    """Forwards TCP connections to a server.

    Attributes:
        url: the database, by way of this network.
        refusing: whether new connections are closed at once.
        count: connections that have been made.
    """

    _target: Endpoint
    url: str = ""
    refusing: bool = False
    count: int = 0
    _forgotten: trio.Event = attrs.field(factory=trio.Event, init=False)

    def forget(self) -> None:
        """Let nothing more through on the connections there are, and close none; new ones work."""
        self._forgotten.set()
        self._forgotten = trio.Event()

    async def carry(self, client: trio.SocketStream) -> None:
        """Forward one connection."""
        if self.refusing:
            await trio.aclose_forcefully(client)
            return
        self.count += 1
        forgotten = self._forgotten
        if self._target.is_socket:
            path = f"{self._target.host}/.s.PGSQL.{self._target.port}"
            server: trio.SocketStream = await trio.open_unix_socket(path)
        else:
            server = await trio.open_tcp_stream(self._target.host, self._target.port)
        async with client, server, trio.open_nursery() as both:
            for way in ((client, server), (server, client)):
                both.start_soon(_pump, *way, forgotten, both.cancel_scope)


async def _pump(
    source: trio.SocketStream,
    sink: trio.SocketStream,
    forgotten: trio.Event,
    both: trio.CancelScope,
) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while data := await source.receive_some():
            if forgotten.is_set():
                await trio.sleep_forever()
            await sink.send_all(data)
    if forgotten.is_set():
        await trio.sleep_forever()
    both.cancel()


@asynccontextmanager
async def network_to(database: str) -> AsyncIterator[Network]:
    """Have a network to the server of *database*, a URL."""
    url = DatabaseUrl.parse(database)
    network = Network(url.endpoints[0])
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, network.carry, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        login = f"{url.user}:{url.password}" if url.password else url.user
        network.url = f"postgresql://{login}@127.0.0.1:{port}/{url.database}"
        yield network
        nursery.cancel_scope.cancel()
