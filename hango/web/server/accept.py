"""The HTTP server: listens, accepts connections and runs each in a task that cannot harm another.

Rule: the server is stopped by its event, never by cancelling it: then it stops listening, lets open
requests finish for a while, and shuts its sockets down, so that no client is left waiting
(https://github.com/pgjones/hypercorn/issues/106).  Only `hango.serve` and `hango.testing` use it.
"""

from __future__ import annotations

import importlib.metadata
import logging
import resource
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Protocol

import attrs
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from quart_trio import QuartTrio

from hango.errors import ConfigError
from hango.safe_errors import format_frames
from hango.web.server.connection import HttpConnection, split_cancellation
from hango.web.server.http1 import error_body, error_headers
from hango.web.server.limits import ConnectionLimits, OpenConnections, RareLog, peer_of
from hango.web.server.listen import listening
from hango.web.server.middleware import RequestGuard

# seconds that open requests get to finish; none of ours takes one, and clients that wait for a run have
# been answered when the drain began
GRACEFUL = 10.0
# seconds until connections are accepted again after the system had no descriptor or memory for one
ACCEPT_PAUSE = 0.1
# descriptors kept for the database, providers, tools and files
RESERVED_FILES = 128
MAX_REFUSALS = 64  # connections being refused at once; beyond, they are closed without an answer
# what the tests ran against; `hango.web.server.http1` and `connection` override methods of it
TESTED_HYPERCORN = frozenset({"0.18.0"})

_log = logging.getLogger(__name__)


class Application(Protocol):
    """What is served."""

    @property
    def asgi(self) -> QuartTrio:
        """Answers requests."""
        ...

    async def listen(self) -> None:
        """Run while requests are answered; cancelled after that."""
        ...


async def serve(
    app: Application,
    bind: str,
    *,
    stop: trio.Event,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  # frozen
    graceful: float = GRACEFUL,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* until *stop* is set and open requests have been answered.

    Args:
        app: what `hango.web.app.create_app` or `hango.web.health.create_health_app` made.
        bind: ``host:port``, ``[address]:port`` or ``unix:/path``; port 0 takes a free one.
        stop: set to stop.
        limits: what a client may do.
        graceful: seconds open requests get after *stop*; then they are cancelled.
        task_status: started with the URLs that are listened on, once they are.

    Raises:
        OSError: *bind* cannot be listened on.
        ConfigError: this version of hypercorn is not known to work.
    """
    check_hypercorn(importlib.metadata.version("hypercorn"))
    with listening(bind) as (listener, url):
        server = HttpServer(app, affordable(limits), stop)
        async with trio.open_nursery() as background:
            background.start_soon(app.listen)
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(server.accept, listener, connections)
                    task_status.started([url])
                    await stop.wait()
                    accepting.cancel_scope.cancel()
                await listener.aclose()
                await server.finish()
                connections.cancel_scope.deadline = trio.current_time() + graceful
            background.cancel_scope.cancel()


def check_hypercorn(version: str) -> None:
    """Warn about a release of hypercorn that was not tested; refuse another series.

    Raises:
        ConfigError: the release is of another series than those that were tested.
    """
    if version in TESTED_HYPERCORN:
        return
    tested = ", ".join(sorted(TESTED_HYPERCORN))
    series = {known.rpartition(".")[0] for known in TESTED_HYPERCORN}
    if version.rpartition(".")[0] not in series:
        raise ConfigError((f"hypercorn {version} does not work with this hango; install {tested}",))
    _log.warning("hypercorn %s was not tested with this hango; %s was", version, tested)


def affordable(limits: ConnectionLimits) -> ConnectionLimits:
    """Return *limits* with no more connections than this process may open files, less a reserve."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(files - RESERVED_FILES, RESERVED_FILES // 2)
    if files == resource.RLIM_INFINITY or limits.connections <= most:
        return limits
    _log.warning(
        "at most %d connections instead of %d, since this process may open %d files; raise `ulimit -n`"
        " or lower HANGO_MAX_CONNECTIONS",
        most,
        limits.connections,
        files,
    )
    return attrs.evolve(limits, connections=most)


class HttpServer:
    """Accepts the connections of one server, and refuses those beyond the limits."""

    def __init__(self, app: Application, limits: ConnectionLimits, stop: trio.Event) -> None:
        self._app = ASGIWrapper(RequestGuard(app.asgi, stop))
        self._limits = limits
        self._config = _config()
        self._context = WorkerContext(max_requests=None)
        self._open = OpenConnections(limits)
        self._refusing = 0
        self._faults = RareLog(_log)

    async def accept(self, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        """Accept connections for ever, and serve them in *connections*."""
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                # no descriptor or memory is free: make room, and wait for it
                self._faults.log("no connection can be accepted for now: %s", error.strerror)
                self._open.end_one()
                await trio.sleep(ACCEPT_PAUSE)
                continue
            try:
                self._take(stream, connections)
            except OSError:
                stream.socket.close()  # the client has gone, and its address with it

    def _take(self, stream: trio.SocketStream, connections: trio.Nursery) -> None:
        """Serve a connection in *connections*, or refuse it there."""
        peer = peer_of(stream.socket.getpeername())
        if self._open.make_room(peer):
            connection = self._connection(stream)
            self._open.add(connection, peer)
            connections.start_soon(self._serve, connection)
        else:
            self._faults.log(
                "a connection was refused: the limit HANGO_MAX_CONNECTIONS or"
                " HANGO_MAX_CONNECTIONS_PER_PEER is reached"
            )
            connections.start_soon(self._guard, partial(self._refuse, stream))

    async def finish(self) -> None:
        """Close what is unused; other connections end with the answer they wait for."""
        await self._context.terminated.set()
        while self._open.end_one():
            pass

    def _connection(self, stream: trio.SocketStream) -> HttpConnection:
        return HttpConnection(
            self._app,
            self._config,
            self._context,
            stream,
            self._limits,
            on_use=self._open.note_use,
            on_error=self._note_fault,
        )

    async def _serve(self, connection: HttpConnection) -> None:
        try:
            await self._guard(connection.run)
        finally:
            self._open.remove(connection)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work of one connection; whatever it raises costs that connection (rule 27)."""
        try:
            await work()
        except BaseException as error:  # noqa: BLE001  # the border of what is foreign
            cancelled, fault = split_cancellation(error)
            if fault is not None:
                self._note_fault(fault)
            if cancelled is not None:
                raise cancelled from None

    def _note_fault(self, fault: BaseException) -> None:
        self._faults.log("a connection failed: %s", format_frames(fault))

    async def _refuse(self, stream: trio.SocketStream) -> None:
        """Answer 503 and close; at once and without an answer when many are being refused."""
        self._refusing += 1
        try:
            with trio.move_on_after(self._limits.linger), suppress(trio.BrokenResourceError):
                if self._refusing <= MAX_REFUSALS:
                    await stream.send_all(_refusal())
                    await stream.send_eof()
                    async for _ in stream:
                        pass  # closing with something unread would destroy the answer
        finally:
            self._refusing -= 1
            stream.socket.close()


def _refusal() -> bytes:
    body = error_body(HTTPStatus.SERVICE_UNAVAILABLE)
    fields = [*error_headers(body), (b"retry-after", b"1"), (b"cache-control", b"no-store")]
    head = b"HTTP/1.1 503 \r\n" + b"".join(b"%b: %b\r\n" % field for field in fields)
    return head + b"\r\n" + body


def _config() -> Config:
    config = Config()
    # a logger, so that hypercorn adds no handler of its own; its level is set with all others
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    return config
