"""The API over a real socket, in the test's own process.

One rule: nothing stands in for the server; a request goes the way it goes in production.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import httpx
import trio

from hango.store import Stores
from hango.testing.clock import autojumping
from hango.web.app import WebSettings, create_app
from hango.web.run_waiter import RunWaiter
from hango.web.server import serve
from hango.web.server.limits import ConnectionLimits


@attrs.frozen
class Server:
    """A running server.

    Attributes:
        url: where it listens.
        run_waiter: counts the requests that wait for runs.
        draining: set it and no new runs are taken.
        stop: set it to shut the server down; `stopped` is set when it has.
    """

    url: str
    run_waiter: RunWaiter
    draining: trio.Event
    stop: trio.Event
    stopped: trio.Event


@asynccontextmanager
async def running_server(
    stores: Stores,
    settings: WebSettings,
    *,
    bind: str = "127.0.0.1:0",
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  # frozen
    graceful: float = 5.0,
) -> AsyncIterator[Server]:
    """Run a server; it is shut down at the end, and must come to its own.

    Args:
        stores: what it reads and writes.
        settings: what an operator decides.
        bind: where it listens; port 0 is any.
        limits: what a client may do.
        graceful: seconds that open requests have to finish.
    """
    draining, stop, stopped = trio.Event(), trio.Event(), trio.Event()
    app = create_app(stores, settings, draining)

    async def web(task_status: trio.TaskStatus[list[str]]) -> None:
        await serve(app, bind, stop=stop, limits=limits, graceful=graceful, task_status=task_status)
        stopped.set()

    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(web)
        yield Server(url, app.run_waiter, draining, stop, stopped)
        stop.set()
        async with autojumping():
            await stopped.wait()


def client_of(server: Server, key: str) -> httpx.AsyncClient:
    """Make a client that sends *key* with each request."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False, timeout=30)
