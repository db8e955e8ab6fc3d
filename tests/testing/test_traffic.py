"""The pool counts what is under way, so that whoever owns time can wait for it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import trio

from hango.db.pool import Pool
from hango.testing.plugin import sql


async def is_counted(pool: Pool, work: Callable[[], Awaitable[object]]) -> bool:
    """Tell whether *work* is counted as under way, from its first step to its last."""
    seen = ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        while nursery.child_tasks:
            await trio.lowlevel.checkpoint()
            seen += str(pool.in_flight)
    # it takes a step or two to begin, and may be over at the last look; a connection that is opened for
    # it is counted as well
    return re.fullmatch("0{0,3}[1-9]+0?", seen) is not None


async def test_all_traffic_is_counted(hango_pool: Pool) -> None:
    """Statements, and what a listener says to the server: connecting, listening, looking."""
    async with AsyncExitStack() as stack:
        listening = partial(stack.enter_async_context, hango_pool.listen())
        assert await is_counted(hango_pool, listening)
        assert await is_counted(hango_pool, hango_pool.flush)
    assert await is_counted(hango_pool, partial(sql, hango_pool, "select 1"))
    assert hango_pool.in_flight == 0
