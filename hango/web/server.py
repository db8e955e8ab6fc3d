"""Serving the application: hypercorn, inside the caller's nursery.

Rule: the server is stopped by its event, never by cancelling it: then it closes its listeners, lets
open requests finish for a while, and shuts its sockets down, so that no peer is left hanging
(https://github.com/pgjones/hypercorn/issues/106).  Only `hango.app` uses it.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import hypercorn.trio.run
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio import serve as hypercorn_serve
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import (
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    HTTPScope,
    Scope,
)
from quart_trio import QuartTrio

from hango.web.app import WebApp

# seconds that open requests get to finish; none of ours takes one, and whoever waits for a run was
# told when the drain began
GRACEFUL = 10.0
# seconds between two requests of one connection: as nginx, and above what clients and proxies keep
# (60 s is common), so that the one who closes is the one who would otherwise send into the void
KEEP_ALIVE = 75.0
BACKLOG = 1024  # connections the kernel holds while we are busy
# seconds in which a reader must take some of what we send; as long as a phone changing networks
WRITE_STALL = 15.0
CHUNK = 64 * 1024  # bytes; the "some" above
LINGER = 2.0  # seconds in which a client can read our last answer before the socket is gone


async def serve(
    app: WebApp,
    bind: str,
    *,
    stop: trio.Event,
    graceful: float = GRACEFUL,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* until *stop* is set and open requests have been answered.

    Args:
        app: what `hango.web.app.create_app` made.
        bind: ``host:port``, ``[address]:port`` or ``unix:/path``; port 0 takes a free one.
        stop: set to stop.
        graceful: seconds open requests get after that; then they are cancelled.
        task_status: started with the URLs that are listened on, once they are.

    Raises:
        OSError: *bind* cannot be listened on.
    """
    hypercorn.trio.run.TCPServer = SoundTCPServer  # type: ignore[attr-defined]  # its only seam
    config = _config(bind, graceful)
    async with trio.open_nursery() as ear:
        ear.start_soon(app.run_waiter.listen)
        await hypercorn_serve(
            Intake(app.asgi),
            config,
            shutdown_trigger=stop.wait,
            task_status=task_status,
            mode="asgi",
        )
        ear.cancel_scope.cancel()


def _config(bind: str, graceful: float) -> Config:
    config = Config()
    config.bind = [bind if bind.startswith("unix:") else f"fd://{_listen(bind).detach()}"]
    config.graceful_timeout = graceful
    config.keep_alive_timeout = KEEP_ALIVE
    config.backlog = BACKLOG
    # a logger, so that it adds no handler of its own; its level is set with all others
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    return config


def _listen(bind: str) -> socket.socket:
    """Listen on ``host:port``: here, where an error is its own and leaves nothing open."""
    host, _, port = bind.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, backlog=BACKLOG)


class Intake:
    """The application, told only what it can stand.

    A target may be absolute (``GET http://host/path``, which a server must take, RFC 9112 §3.2.2), or
    no path at all (``*``, or a bare query), at which the framework would stumble before it can answer.
    A body may have no declared length, and some versions of the framework buffer such a one without
    a bound: here it ends one byte after the bound, so that it is refused for its size.
    An answer to what has not all been read ends the connection, and here it says so.
    """

    def __init__(self, app: QuartTrio) -> None:
        self._app = app
        self._most = int(app.config["MAX_CONTENT_LENGTH"]) + 1

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Serve one connection of the ASGI protocol."""
        if scope["type"] == "http" or scope["type"] == "websocket":
            scope["path"] = _path_of(scope["path"])
        if scope["type"] == "http":
            receive, send = _farewell(scope, receive, send)
            receive = _cut_body(receive, self._most)
        await self._app(scope, receive, send)


def _path_of(target: str) -> str:
    if target.startswith("/"):
        return target
    try:
        path = urlsplit(target).path
    except ValueError:  # a host that cannot be one
        path = ""
    return path if path.startswith("/") else "/"


def _farewell(
    scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable
) -> tuple[ASGIReceiveCallable, ASGISendCallable]:
    """Return *receive*, and a *send* that says ``Connection: close`` while the body is still coming.

    The server closes the connection then, and a client that was not told would send its next request
    into the void (RFC 9112 §9.6).  HTTP/2 has streams for that, and no such header.
    """
    names = {name.lower() for name, _ in scope["headers"]}
    coming = scope["http_version"] != "2" and bool(names & {b"content-length", b"transfer-encoding"})

    async def receive_watched() -> ASGIReceiveEvent:
        nonlocal coming
        event = await receive()
        if event["type"] == "http.request" and not event["more_body"]:
            coming = False
        return event

    async def send_farewell(event: ASGISendEvent) -> None:
        if event["type"] == "http.response.start" and coming:
            event["headers"] = [*event["headers"], (b"connection", b"close")]
        await send(event)

    return receive_watched, send_farewell


def _cut_body(receive: ASGIReceiveCallable, most: int) -> ASGIReceiveCallable:
    """Return a *receive* that passes on *most* bytes of the body and drops the rest."""
    left = most

    async def receive_cut() -> ASGIReceiveEvent:
        nonlocal left
        while True:
            event = await receive()
            if event["type"] != "http.request":
                return event
            if left == 0:
                continue
            body = event["body"][:left]
            left -= len(body)
            return {"type": "http.request", "body": body, "more_body": event["more_body"] and left > 0}

    return receive_cut


class SoundTCPServer(TCPServer):
    """One connection, in which no client can hold the server, and which ends when it should.

    What hypercorn does otherwise, seen with 0.18:

    - It sends under a shield without a bound, so that one client that stops reading keeps the whole
      process from ending.  Here every piece of an answer has its time, and then the cut.
    - Its bookkeeping after an answer is undone by the cancellation of the request, which is just then
      over: an idle connection is not watched (and holds up a shutdown), one whose body was refused
      stays open, its next request unanswered.  Here the bookkeeping is shielded.
    - It closes at once, and the reset that follows what the client is still sending destroys the
      answer on its way.  Here it says that it has finished, and listens a little longer.
    - It watches a connection that is gone until the time for idle ones is over.
    """

    _gone = False

    async def protocol_send(self, event: Event) -> None:
        """Do what the protocol wants: send, close, or watch an idle connection."""
        if isinstance(event, RawData):
            async with self.send_lock:
                sent = await self._send(event.data)
            if not sent:
                await self.protocol.handle(Closed())
            return
        with trio.move_on_after(LINGER, shield=True):
            if isinstance(event, Closed):
                await self._hang_up()
            elif not self._gone:
                await super().protocol_send(event)

    async def _send(self, data: bytes) -> bool:
        """Return whether all of *data* went out; otherwise the connection is cut."""
        sent = False
        try:
            for start in range(0, len(data), CHUNK):
                await trio.lowlevel.checkpoint_if_cancelled()
                with trio.fail_after(WRITE_STALL, shield=True):
                    await self.stream.send_all(data[start : start + CHUNK])
            sent = True
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # told by the return value
        finally:
            if not sent:
                await trio.aclose_forcefully(self.stream)
        return sent

    async def _hang_up(self) -> None:
        """Finish sending, and give the client time to read and close."""
        if self._gone:
            return
        self._gone = True
        protocol = self.protocol
        self.protocol = _Deaf()  # type: ignore[assignment]  # a protocol is only told what happens
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.stream.send_eof()
        await self.idle_task.restart(self._task_group, self._linger)
        await protocol.handle(Closed())

    async def _linger(self) -> None:
        await trio.sleep(LINGER)
        await trio.aclose_forcefully(self.stream)

    async def _read_data(self) -> None:
        await super()._read_data()
        self._gone = True
        await self.idle_task.stop()


class _Deaf:
    """The protocol of a connection that has been hung up: whatever still comes is dropped."""

    async def handle(self, event: Event) -> None:
        """Drop *event*."""
