"""The proxy of chaos runs passes everything on, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.chaos.proxy import Proxy, open_proxy


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    """Have a proxy before a server that echoes."""
    path = tmp_path / ".s.PGSQL.5432"
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(str(path))
    listener.listen()

    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, echo, [trio.SocketListener(listener)])
        async with open_proxy(f"postgresql://me@/db?host={tmp_path}&port=5432") as made:
            yield made
        nursery.cancel_scope.cancel()


async def connect(proxy: Proxy) -> trio.SocketStream:
    """Connect to it as its URL says."""
    parts = urlsplit(proxy.dsn)
    assert parts.hostname
    assert parts.port
    return await trio.open_tcp_stream(parts.hostname, parts.port)


async def test_both_ways_and_to_the_end(proxy: Proxy) -> None:
    """The URL names the user and the database; a connection ends at both sides."""
    assert urlsplit(proxy.dsn).username == "me"
    assert urlsplit(proxy.dsn).path == "/db"
    async with await connect(proxy) as stream:
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"hello"


@pytest.mark.parametrize("reset", [False, True])
async def test_nothing_passes_while_it_is_stopped(proxy: Proxy, *, reset: bool) -> None:
    """Open and new connections stay open and silent; then what was sent arrives, or all is cut."""
    old = await connect(proxy)
    await old.send_all(b"1")
    assert await old.receive_some() == b"1"
    proxy.stop()
    new = await connect(proxy)
    answers: list[bytes] = []

    async def ask(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.send_all(b"2")
            with suppress(trio.BrokenResourceError):
                answers.append(await stream.receive_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, old)
        nursery.start_soon(ask, new)
        await wait_all_tasks_blocked(0.05)
        assert answers == []
        proxy.go_on(reset=reset)
    assert set(answers) <= ({b""} if reset else {b"2"})
    assert reset or len(answers) == 2
