"""One HTTP connection: hypercorn's `TCPServer`, with a bound on all a client can do or leave undone.

Rule: whatever a connection does or raises costs that connection.  Its tasks are children of `run`,
which ends when the client has gone, stalls, or has been answered for the last time.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Self, TypeVarTuple

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveEvent,
    ASGISendEvent,
    ConnectionState,
    LifespanState,
    Scope,
)
from hypercorn.utils import parse_socket_addr

from hango.web.server.http1 import Http1Protocol
from hango.web.server.limits import ConnectionLimits

Args = TypeVarTuple("Args")

# bytes received at once; what the parser holds back is copied for each event, so it is kept small
_RECEIVED = 16 * 1024


def split_cancellation(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Return trio's cancellation in *error*, to be raised again, and what else is in it; or None."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)
    return (error, None) if isinstance(error, trio.Cancelled) else (None, error)


class HttpConnection(TCPServer):
    """One connection from its acceptance to its end.

    What hypercorn's own does otherwise, seen with 0.18: it speaks whatever protocol the client
    proposes; it sends under a shield without a bound; its bookkeeping after an answer is undone by
    the cancellation of the request, which is just then over; it closes at once, so that a reset
    destroys the answer; a client that is gone, or a body that nobody reads, can leave it waiting for
    ever.

    Attributes:
        unused: whether no request is received or answered, so that the connection may be closed.
        on_use: called when `unused` has changed.
        on_error: called with what the application raised.
    """

    def __init__(
        self,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        limits: ConnectionLimits,
        *,
        on_use: Callable[[HttpConnection], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__(app, config, context, LifespanState(), stream)  # type: ignore[arg-type]  # no TLS
        self.unused = True
        self.on_use = on_use
        self.on_error = on_error
        self.protocol: Http1Protocol  # type: ignore[assignment]  # not the wrapper that speaks HTTP/2
        self._limits = limits
        self._nursery: trio.Nursery
        self._in_head = False
        self._hung_up = False
        self._over = trio.Event()  # the last answer is sent, and its end as well
        self._deadline = math.inf  # of the client's next bytes, on trio's clock
        self._receiving = trio.CancelScope()  # the wait for them, which is cancelled then
        self._wait_for(limits.keep_alive)

    async def run(self) -> None:
        """Serve the connection until it is over; the socket is closed then.

        Raises:
            BaseException: what is at fault in hypercorn, in h11 or here.
        """
        socket = self.stream.socket
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with trio.open_nursery() as self._nursery:
                self.protocol = Http1Protocol(
                    self.app,
                    self.config,
                    self.context,
                    _Requests(self._nursery, self.on_error),
                    ConnectionState(self.state),
                    ssl=False,
                    client=client,
                    server=server,
                    send=self.protocol_send,
                )
                self.protocol.use_strict_parser()
                try:
                    await self._read()
                finally:
                    self._drop()
        except OSError:
            pass  # the client had gone before its address could be read
        finally:
            socket.close()

    def end(self) -> None:
        """Close the connection, which is unused."""
        self._hung_up = True
        self._wait_for(-math.inf)

    def _drop(self) -> None:
        """Close the socket at once, and with it whatever waits for it or works for the client."""
        self.stream.socket.close()
        self._nursery.cancel_scope.cancel()

    def _wait_for(self, seconds: float) -> None:
        self._deadline = self._receiving.deadline = trio.current_time() + seconds

    async def _read(self) -> None:
        """Hand on what arrives; return when no answer is owed any more, or cannot be given."""
        while (data := await self._receive()) is not None:
            if not self._hung_up:
                await self.protocol.handle(RawData(data))
                self._watch_head()
            if not data:
                # the client may have closed one direction only: what is almost done is still answered
                with trio.move_on_after(0 if self.unused else self._limits.linger):
                    await self._over.wait()
                return

    async def _receive(self) -> bytes | None:
        """Return what arrives, empty at its end; None when it takes too long or the socket is gone."""
        self._receiving = trio.CancelScope(deadline=self._deadline)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError), self._receiving:
            return bytes(await self.stream.receive_some(_RECEIVED))
        if self._receiving.cancelled_caught and self._in_head and not self._hung_up:
            await self.protocol.refuse(HTTPStatus.REQUEST_TIMEOUT)
            return await self._receive()
        return None

    def _watch_head(self) -> None:
        """Set a deadline for the rest of a request's head when the first of it has come."""
        begun = self.protocol.connection.head_begun
        if begun and not self._in_head and not self._hung_up:
            self._wait_for(self._limits.head)
        self._in_head = begun

    async def protocol_send(self, event: Event) -> None:
        """Do what the protocol wants: send, hang up, or wait for another request."""
        if isinstance(event, RawData):
            async with self.send_lock:
                await self._send(event.data)
        elif isinstance(event, Closed):
            await self._hang_up()
        elif isinstance(event, Updated) and not self._hung_up:
            self._wait_for(self._limits.keep_alive if event.idle else math.inf)
            self.unused = event.idle
            self.on_use(self)

    async def _send(self, data: bytes) -> None:
        """Send *data*; a client that does not take it in time loses the connection."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            # shielded: an answer cut in the middle would be followed by another one
            with trio.fail_after(self._limits.stall, shield=True):
                await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            self._drop()

    async def _hang_up(self) -> None:
        """Finish sending, and give the client time to read and close; what still comes is dropped."""
        if self._hung_up:
            return
        self._hung_up = True
        self.protocol.connection.closed = True
        self._wait_for(self._limits.linger)
        with (
            trio.move_on_after(self._limits.linger, shield=True),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            async with self.send_lock:  # an answer may be on its way still, to a slow reader
                await self.stream.send_eof()
        self._over.set()


class _Requests:
    """The requests of one connection, each in a task of its nursery: hypercorn's `TaskGroup`."""

    def __init__(self, nursery: trio.Nursery, on_error: Callable[[BaseException], None]) -> None:
        self._nursery = nursery
        self._on_error = on_error

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start to answer a request; return what takes the events of its body."""
        to_app, events = trio.open_memory_channel[ASGIReceiveEvent](config.max_app_queue_size)
        self._nursery.start_soon(self._answer, app, scope, events, send)

        async def put(event: ASGIReceiveEvent) -> None:
            with suppress(trio.BrokenResourceError):  # answered already: the rest is of no interest
                await to_app.send(event)

        return put

    async def _answer(
        self,
        app: AppWrapper,
        scope: Scope,
        events: trio.MemoryReceiveChannel[ASGIReceiveEvent],
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> None:
        """Run the application for one request; whatever it raises costs that request."""
        try:
            with events:
                await app(scope, events.receive, send, trio.to_thread.run_sync, trio.from_thread.run)
        except BaseException as error:  # noqa: BLE001  # the border of what is foreign, rule 27
            cancelled, fault = split_cancellation(error)
            if fault is not None:
                self._on_error(fault)
            if cancelled is not None:
                raise cancelled from None
        await send(None)  # a 500 if nothing was answered, and the end of the connection if not all was

    def spawn(self, func: Callable[[*Args], Awaitable[None]], *args: *Args) -> None:
        """Start a task of hypercorn's."""
        self._nursery.start_soon(func, *args)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        pass  # the nursery is the connection's
