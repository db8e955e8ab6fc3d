"""A server with routes of a test's own: one that raises, and one that is held up."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import attrs
import httpx
import trio
from quart import Response

from hango.db.pool import Pool
from hango.store import Stores
from hango.web.app import create_app
from hango.web.server import accept as server
from hango.web.server.limits import ConnectionLimits

from support.api import SETTINGS

HELD = b"GET /held HTTP/1.1\r\nHost: hango\r\n\r\n"


@attrs.define
class Served:
    """A server with routes of the test's own.

    Attributes:
        answer: answers ``GET /raise``.
        held: requests of ``GET /held`` that are waiting.
        release: set to answer them.
        stop: set to stop the server.
    """

    url: str = ""
    answer: Callable[[], Awaitable[Response]] | None = None
    held: int = 0
    release: trio.Event = attrs.field(factory=trio.Event)
    stop: trio.Event = attrs.field(factory=trio.Event)

    async def on_raise(self) -> Response:
        """Do what the test wants."""
        assert self.answer
        return await self.answer()

    async def on_held(self) -> Response:
        """Wait for the test."""
        self.held += 1
        await self.release.wait()
        return Response("held")

    def client(self) -> httpx.AsyncClient:
        """Make a client."""
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30)

    async def connect(self, said: bytes = b"") -> trio.SocketStream:
        """Connect, and say something."""
        target = urlsplit(self.url)
        stream = await trio.open_tcp_stream(target.hostname or "", target.port or 80)
        await stream.send_all(said)
        return stream

    async def hold(self) -> trio.SocketStream:
        """Connect, and have a request under way."""
        before = self.held
        stream = await self.connect(HELD)
        with trio.fail_after(30):
            while self.held == before:  # noqa: ASYNC110  # a counter has no event
                await trio.sleep(0.005)
        return stream


@asynccontextmanager
async def served(
    pool: Pool,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  # frozen
    graceful: float = 5.0,
) -> AsyncIterator[Served]:
    """Serve the application with the routes of `Served`."""
    it = Served()
    app = create_app(Stores.on(pool), SETTINGS, trio.Event())
    app.asgi.get("/raise")(it.on_raise)
    app.asgi.get("/held")(it.on_held)

    async def web(task_status: trio.TaskStatus[list[str]]) -> None:
        await server.serve(
            app,
            "127.0.0.1:0",
            stop=it.stop,
            limits=limits,
            graceful=graceful,
            task_status=task_status,
        )

    async with trio.open_nursery() as nursery:
        (it.url,) = await nursery.start(web)
        yield it
        it.release.set()
        it.stop.set()


async def read(stream: trio.SocketStream) -> bytes:
    """Read until the server closes; return all of it."""
    with trio.fail_after(30):
        return b"".join([data async for data in stream])


async def read_one(stream: trio.SocketStream) -> bytes:
    """Read one whole answer; empty if the server closes."""
    answer, missing = b"", 1
    with trio.fail_after(30):
        while missing > 0 and (data := await stream.receive_some()):
            answer += data
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            missing = int(length[1]) - len(body) if length else 1
    return answer
