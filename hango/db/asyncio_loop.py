"""The event loop of asyncio, which asyncpg needs; it runs in a task of its own.

Code in the context does not see it: a tool that asks asyncio for the running loop is told that there is
none, and can neither stop this one nor leave tasks in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio_asyncio

from hango.db.failures import log_unhandled_asyncio_error

# Of the loop, at its end: a transport is closed in one, and what was cancelled may close another.
_ROUNDS = 5


@asynccontextmanager
async def open_loop() -> AsyncIterator[trio_asyncio.TrioEventLoop]:
    """Run an event loop until the context is left; close all connections before that."""
    closing = trio.Event()

    async def run(task_status: trio.TaskStatus[trio_asyncio.TrioEventLoop]) -> None:
        with trio.CancelScope(shield=True):
            async with trio_asyncio.open_loop() as loop:
                loop.set_exception_handler(log_unhandled_asyncio_error)
                task_status.started(loop)
                await closing.wait()
                for _ in range(_ROUNDS):
                    await loop.run_aio_coroutine(asyncio.sleep(0))

    async with trio.open_nursery() as nursery:
        loop = await nursery.start(run)
        try:
            yield loop
        finally:
            closing.set()
