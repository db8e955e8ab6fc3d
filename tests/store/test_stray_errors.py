"""An error that asyncio has nobody to tell costs no connection but its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
from functools import partial

import pytest
import trio

from hango.db.connections import Connection
from hango.db.pool import Pool, open_pool
from hango.errors import StoreUnavailable

SSL_REQUEST = struct.pack("!ll", 8, 80877103)


@pytest.mark.parametrize(
    ("error", "level"), [(ConnectionError("lost"), logging.INFO), (ValueError("hgo_x"), logging.ERROR)]
)
async def test_an_error_nobody_waits_for_is_logged_and_the_pool_goes_on(
    pool: Pool, caplog: pytest.LogCaptureFixture, error: Exception, level: int
) -> None:
    """D11: its type and place are told, not its message."""
    caplog.set_level(logging.INFO)

    async def leave(_: Connection) -> None:
        asyncio.get_running_loop().create_future().set_exception(error)

    await pool.unit(leave)
    gc.collect()
    await pool.ping(deadline=5)
    (record,) = [record for record in caplog.records if record.name == "hango.db.failures"]
    assert record.levelno == level
    assert type(error).__name__ in record.getMessage()
    assert str(error) not in record.getMessage()


async def test_connecting_over_tcp_may_be_cut_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    """D11: by the end of the pool, at any step of the way."""

    async def refuse(stream: trio.SocketStream) -> None:
        """Have no TLS, and then no more to say."""
        async with stream:
            if await stream.receive_some(len(SSL_REQUEST)) == SSL_REQUEST:
                await stream.send_all(b"N")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, refuse, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        for steps in range(60):
            await cut_after(f"postgresql://nobody@127.0.0.1:{port}/nothing", steps)
        nursery.cancel_scope.cancel()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def cut_after(dsn: str, steps: int) -> None:
    """Begin to connect, and close the pool after so many rounds of the scheduler."""

    async def connect(pool: Pool) -> None:
        with pytest.raises(StoreUnavailable):
            await pool.ping(deadline=5)

    async with open_pool(dsn) as pool:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect, pool)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert pool.idle == pool.size
    gc.collect()
