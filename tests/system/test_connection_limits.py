"""How many connections there may be, and what becomes of those beyond."""

from __future__ import annotations

import os
import resource
import socket
from urllib.parse import urlsplit

import pytest
import trio
from hostile.connections import GET
from trio.testing import wait_all_tasks_blocked

from hango.db.pool import Pool
from hango.web.server import accept as server
from hango.web.server.limits import ConnectionLimits, RareLog, peer_of

from support.served import read, read_one, served


async def is_refused(stream: trio.SocketStream) -> bool:
    """Whether the server answers that there are too many connections, and closes."""
    answer = await read(stream)
    await stream.aclose()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (
        head.startswith(b"HTTP/1.1 503 ")
        and b"application/problem+json" in head
        and b"retry-after" in head
        and b'"code":"too_many_connections"' in body
    )


@pytest.mark.rule(29)
@pytest.mark.parametrize(
    "limits", [ConnectionLimits(connections=3), ConnectionLimits(per_peer=3)], ids=["all", "peer"]
)
async def test_beyond_the_limit_a_connection_is_refused_and_told(
    pool: Pool, limits: ConnectionLimits, caplog: pytest.LogCaptureFixture
) -> None:
    """S-M2: when all are in use; one that ends makes room for another."""
    async with served(pool, limits) as it:
        held = [await it.hold() for _ in range(3)]
        for _ in range(2 * RareLog.LINES):
            assert await is_refused(await it.connect(GET))
        it.release.set()
        for stream in held:
            assert (await read_one(stream)).startswith(b"HTTP/1.1 200")
            await stream.aclose()
        async with it.client() as client:
            assert (await client.get("/healthz")).status_code == 200
    assert caplog.text.count("a connection was refused") == RareLog.LINES


@pytest.mark.rule(29)
@pytest.mark.parametrize(
    "limits", [ConnectionLimits(connections=3), ConnectionLimits(per_peer=3)], ids=["all", "peer"]
)
@pytest.mark.parametrize("said", [b"", b"GET /hea", GET], ids=["nothing", "half", "one"])
async def test_a_flood_of_unused_connections_keeps_nobody_out(
    pool: Pool, limits: ConnectionLimits, said: bytes
) -> None:
    """S-M2: the one that is unused for longest is closed for a new one; one in use never is."""
    async with served(pool, limits) as it:
        held = await it.hold()
        unused = []
        for _ in range(2):
            stream = await it.connect(said)
            if said == GET:
                await read_one(stream)
            unused.append(stream)
        await wait_all_tasks_blocked(0.02)
        newest = await it.connect(GET)
        assert (await read_one(newest)).startswith(b"HTTP/1.1 200")
        assert await read(unused[0]) == b""
        await unused[1].send_all(b"lthz HTTP/1.1\r\nHost: h\r\n\r\n" if said == b"GET /hea" else GET)
        assert (await read_one(unused[1])).startswith(b"HTTP/1.1 ")
        it.release.set()
        assert (await read_one(held)).startswith(b"HTTP/1.1 200")
        for stream in (held, newest, *unused):
            await stream.aclose()


@pytest.mark.rule(29)
async def test_without_descriptors_it_waits_and_goes_on(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """S-M2: no spinning and no traceback; connections that came meanwhile are answered afterwards."""
    async with served(pool) as it:
        target = urlsplit(it.url)
        waiting = [socket.create_connection((target.hostname, target.port)) for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with trio.fail_after(30):
                while "no connection can be accepted" not in caplog.text:  # noqa: ASYNC110  # a log
                    await trio.sleep(0.01)
            await trio.sleep(3 * server.ACCEPT_PAUSE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert caplog.text.count("no connection can be accepted") <= RareLog.LINES
        assert "Traceback" not in caplog.text
        for each in waiting:
            async with trio.SocketStream(trio.socket.from_stdlib_socket(each)) as stream:
                await stream.send_all(GET)
                assert (await read_one(stream)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("files", "connections"),
    [(100_000, 800), (1024, 800), (500, 372), (200, 72), (64, 64)],
)
def test_connections_leave_descriptors_for_the_rest(
    files: int, connections: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S-M2: with a low limit of open files there are fewer connections, and the log says so."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert server.affordable(ConnectionLimits()).connections == connections
    assert ("raise `ulimit -n`" in caplog.text) is (connections < 800)


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("192.0.2.1", 5), "192.0.2.1"),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("2001:db8:0:1:2:3:4:5", 5, 0, 0), "2001:db8:0:1::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", ""),
    ],
)
def test_a_peer_is_an_address_or_a_network(address: object, peer: str) -> None:
    """S-M2: a client with a whole /64 of IPv6 is one peer."""
    assert peer_of(address) == peer
