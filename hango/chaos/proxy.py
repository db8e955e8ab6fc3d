"""A TCP proxy before a Postgres, whose traffic can stop as if packets were dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from urllib.parse import parse_qs, urlsplit

import attrs
import trio

_BUFFER = 65536  # bytes
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@attrs.define(eq=False)
class Proxy:
    """A proxy that listens.

    Attributes:
        dsn: the URL of the database through it.
    """

    dsn: str
    _socket_path: str
    _open: trio.Event
    _connections: set[trio.CancelScope] = attrs.field(factory=set)

    @classmethod
    def of(cls, dsn: str, port: int) -> Proxy:
        """Describe a proxy on *port* before the server of *dsn*, which has a Unix socket."""
        parts = urlsplit(dsn)
        query = parse_qs(parts.query)
        path = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        user = f"{parts.username}@" if parts.username else ""
        proxied = f"postgresql://{user}127.0.0.1:{port}{parts.path}?sslmode=disable"
        flowing = trio.Event()
        flowing.set()
        return cls(proxied, path, flowing)

    async def blackhole(self, seconds: float, *, reset: bool) -> None:
        """Pass nothing on for *seconds*, while connections stay open and new ones are accepted.

        Args:
            seconds: how long.
            reset: close all connections then; else what was sent meanwhile arrives late.
        """
        self.stop()
        try:
            await trio.sleep(seconds)
        finally:
            self.go_on(reset=reset)

    def stop(self) -> None:
        """Pass nothing on."""
        self._open = trio.Event()

    def go_on(self, *, reset: bool) -> None:
        """Pass everything on again; if *reset*, close all connections first."""
        if reset:
            for scope in self._connections:
                scope.cancel()
        self._open.set()

    async def serve(self, client: trio.SocketStream) -> None:
        """Pass on one connection."""
        with suppress(*_GONE):
            async with client, await trio.open_unix_socket(self._socket_path) as server:
                await self._pass_on_both_ways(client, server)

    async def _pass_on_both_ways(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            self._connections.add(nursery.cancel_scope)

            async def close_with(source: trio.SocketStream, target: trio.SocketStream) -> None:
                with suppress(*_GONE):
                    await self._pass_on(source, target)
                nursery.cancel_scope.cancel()

            nursery.start_soon(close_with, client, server)
            nursery.start_soon(close_with, server, client)
        self._connections.discard(nursery.cancel_scope)

    async def _pass_on(self, source: trio.SocketStream, target: trio.SocketStream) -> None:
        while True:
            data = await source.receive_some(_BUFFER)
            await self._open.wait()
            if not data:
                return
            await target.send_all(data)


@asynccontextmanager
async def open_proxy(dsn: str) -> AsyncIterator[Proxy]:
    """Have a proxy before the server of *dsn*; closed with all its connections at the end."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = Proxy.of(dsn, listeners[0].socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, proxy.serve, listeners))
        yield proxy
        nursery.cancel_scope.cancel()
