"""The server itself: odd requests, clients that vanish or stall, and its end."""

from __future__ import annotations

import math
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.db.pool import Pool, open_pool
from hango.domain import Role, TextBlock
from hango.store import Stores
from hango.testing.plugin import sql
from hango.web.app import WebSettings, create_app
from hango.web.server import accept as server
from hango.web.server.limits import ConnectionLimits

from support.api import SETTINGS, Api, is_problem, running, serving

UPGRADE = b"GET /v1/runs HTTP/1.1\r\nHost: hango\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "

ODD = [
    (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
    (b"GET http://hango/healthz HTTP/1.1\r\nHost: hango\r\n\r\n", b"200"),
    (b"GET http://hango HTTP/1.1\r\nHost: hango\r\n\r\n", b"404"),
    (b"GET http://[ HTTP/1.1\r\nHost: hango\r\n\r\n", b"404"),
    (b"GET ?x HTTP/1.1\r\nHost: hango\r\n\r\n", b"404"),
    (b"OPTIONS * HTTP/1.1\r\nHost: hango\r\n\r\n", b"404"),
    (b"CONNECT hango:80 HTTP/1.1\r\nHost: hango\r\n\r\n", b"404"),
    (b"GET /v1/%s%d{0} HTTP/1.1\r\nHost: hango\r\n\r\n", b"404"),
    (b"GET /nothing HTTP/1.1\r\nHost: a b[\r\n\r\n", b"404"),
    (b"BREW /healthz HTTP/1.1\r\nHost: hango\r\n\r\n", b"405"),
    (b"GET /healthz HTTP/1.1\r\nHost: hango\r\nX-Request-Id: a\x00b\r\n\r\n", b"400"),
    (b"GET /healthz HTTP/1.1\r\nHost: hango\r\nContent-Length: -1\r\n\r\n", b"400"),
    (b"GET /healthz HTTP/1.1\r\nHost: hango\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", b"431"),
    (b"GET /\xff HTTP/1.1\r\nHost: hango\r\n\r\n", b"400"),
    (b"not http at all\r\n\r\n", b"400"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
]


@pytest.mark.parametrize(("request_bytes", "status"), ODD, ids=lambda value: repr(value)[:50])
async def test_an_odd_request_has_its_answer(api: Api, request_bytes: bytes, status: bytes) -> None:
    """Requests no client library sends are answered, and the server goes on (F10)."""
    answer = await exchange(api, request_bytes)
    assert answer.split(b" ", 2)[1] == status, answer
    assert await is_up(api)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\r\n",
        b"G",
        UPGRADE + b"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\ntrailing",
        UPGRADE + b"websocket\r\n\r\n\x00\x01",
        UPGRADE + b"h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage that is no frame at all",
        b"GET /healthz HTTP/1.1\r\nHost: hango\r\n\r\n" * 50,
    ],
    ids=lambda value: repr(value)[:50],
)
async def test_the_server_survives_what_is_said_and_left(api: Api, request_bytes: bytes) -> None:
    """Other protocols, half requests and sudden ends hurt nobody else (F10)."""
    for linger in (False, True):
        stream = await api.connect()
        await stream.send_all(request_bytes)
        await wait_all_tasks_blocked(0.01)
        if linger:
            reset_on_close(stream)
        await stream.aclose()
        assert await is_up(api)


def reset_on_close(stream: trio.SocketStream) -> None:
    """Make the close of *stream* a reset, as a machine that went away would."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def exchange(api: Api, request_bytes: bytes) -> bytes:
    """Say something and return the beginning of the answer."""
    with trio.fail_after(20):
        async with await api.connect() as stream:
            await stream.send_all(request_bytes)
            return await stream.receive_some()


async def is_up(api: Api) -> bool:
    """Whether the server answers."""
    async with api.client() as client:
        return (await client.get("/healthz")).status_code == 200


async def test_clients_that_hang_up_cost_nothing(api: Api) -> None:
    """Requests given up at any moment leak no connection, and what was stored is whole (D12, F08)."""
    session = await api.session()
    chance = random.Random(7)  # noqa: S311  # not a secret

    request = api.head(
        "POST",
        f"/v1/sessions/{session.id}/runs",
        "Content-Type: application/json",
        "Content-Length: 13",
    )

    async def ask_and_leave() -> None:
        stream = await api.connect()
        await stream.send_all(request + b'{"input":"x"}')
        with trio.move_on_after(chance.uniform(0, 0.5)):
            await stream.receive_some()
        reset_on_close(stream)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        for _ in range(120):
            nursery.start_soon(ask_and_leave)
    while api.pool.in_flight:  # noqa: ASYNC110  # nothing tells when the last one has come back
        await trio.sleep(0.01)
    assert api.pool.idle == api.pool.size
    assert await api.count("runs") == await api.count("audit_events", "action = 'run.create'") <= 3
    assert await api.count("runs", "state = 'queued'") == await api.count("runs")
    assert await is_up(api)


MUCH = 20 * 2**20  # bytes; no socket buffers that
STALL = 0.5  # seconds


@pytest.fixture
async def stalling(pool: Pool) -> AsyncIterator[Api]:
    """Serve a session with more to say than any socket buffers, to readers with half a second."""
    async with serving(pool, SETTINGS, limits=ConnectionLimits(stall=STALL), graceful=0.2) as api:
        yield api


async def open_stalled(api: Api) -> trio.SocketStream:
    """Ask for more than `MUCH` bytes and read one of them."""
    session = await api.session()
    # one message: a page of several would end at a megabyte
    await api.acme.sessions.add_message(
        api.acme.scope(Role.MEMBER), session.id, "user", (TextBlock("x" * MUCH),)
    )
    stream = await api.connect()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    await stream.send_all(api.head("GET", f"/v1/sessions/{session.id}/messages"))
    assert await stream.receive_some(1) == b"H"
    return stream


async def read_to_the_end(stream: trio.SocketStream, until: float = math.inf) -> int:
    """Read until the server ends, or enough has come; return how many bytes there were."""
    received = 1
    with trio.fail_after(60), suppress(trio.BrokenResourceError):
        async with stream:
            while received < until and (data := await stream.receive_some(2**16)):
                received += len(data)
    return received


async def test_a_reader_that_stands_still_does_not_hold_the_server(pool: Pool) -> None:
    """A client that stops reading is cut at the shutdown, whatever time it had (F10)."""
    patient = ConnectionLimits(stall=3600)
    async with serving(pool, SETTINGS, limits=patient, graceful=0.2) as api:
        stream = await open_stalled(api)
        api.server.stop.set()
        with trio.move_on_after(20):
            await api.server.stopped.wait()
        ended = api.server.stopped.is_set()
        await stream.aclose()  # frees a server that hangs, so that the test can fail
        assert ended


async def test_a_reader_that_stands_still_is_cut_while_serving(stalling: Api) -> None:
    """Also without a shutdown: the connection ends before the whole answer was sent."""
    stream = await open_stalled(stalling)
    await trio.sleep(3 * STALL)  # the thing under test: a reader that does nothing
    assert await read_to_the_end(stream) < MUCH
    assert await is_up(stalling)


async def test_a_slow_reader_gets_everything(stalling: Api) -> None:
    """A reader that goes on reading, however slowly, is not cut."""
    stream = await open_stalled(stalling)
    assert await read_to_the_end(stream, until=MUCH) >= MUCH


async def test_a_request_under_way_is_answered_at_shutdown(api: Api) -> None:
    """Shutting down closes the doors, lets who is inside finish, and then ends."""
    async with api.as_role(Role.MEMBER) as client:
        await client.get("/healthz")  # an idle connection, to be closed

        async def body() -> AsyncIterator[bytes]:
            yield b'{"agent_id":'
            api.server.stop.set()
            await wait_all_tasks_blocked()
            yield f'"{api.acme.agent.id}"}}'.encode()

        response = await client.post(
            "/v1/sessions", content=body(), headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 201
        with trio.fail_after(10):
            await api.server.stopped.wait()
        with pytest.raises(httpx.ConnectError):
            await client.get("/healthz")


async def test_an_idle_connection_does_not_hold_the_server(pool: Pool) -> None:
    """Connections kept open between requests are closed at once when the server stops."""
    async with serving(pool, graceful=3600) as api, api.client() as client:
        for _ in range(2):
            await client.get("/healthz")
        api.server.stop.set()
        with trio.fail_after(20):
            await api.server.stopped.wait()


async def test_a_connection_that_is_gone_is_let_go(api: Api) -> None:
    """A client that hung up leaves no socket behind, long before idle ones are given up (F10)."""
    for request_bytes in (b"", b"GET /healthz HTTP/1.1\r\nHost: hango\r\n\r\n", b"not http\r\n\r\n"):
        stream = await api.connect()
        await stream.send_all(request_bytes)
        await wait_all_tasks_blocked(0.01)
        await stream.aclose()
    with trio.fail_after(20):
        while half_closed(api):  # noqa: ASYNC110  # the kernel has no event for it
            await trio.sleep(0.05)


def half_closed(api: Api) -> list[object]:
    """Return the server's sockets whose client has gone."""
    port = httpx.URL(api.url).port
    here = [it for it in psutil.Process().net_connections("tcp") if it.laddr.port == port]
    return [it for it in here if it.status == psutil.CONN_CLOSE_WAIT]


async def test_ready_means_that_writes_are_taken(database: str, server: str) -> None:
    """R-F11, N24: read-only is not ready, and the answer says why."""
    name = urlsplit(database).path.removeprefix("/")
    async with (
        open_pool(server, size=1) as operator,
        open_pool(database) as pool,
        running(pool) as api,
        httpx.AsyncClient(base_url=api.url, trust_env=False) as client,
    ):
        answers = [await client.get("/readyz")]
        for setting in ("on", "off"):
            set_it = f"alter database {name} set default_transaction_read_only = {setting}"
            await sql(operator, set_it)
            end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1"
            await sql(operator, end, name)
            answers.append(await client.get("/readyz"))
    assert [answer.status_code for answer in answers] == [200, 503, 200]
    assert "takes no writes" in answers[1].json()["detail"]


async def test_without_a_database_it_lives_but_is_not_ready() -> None:
    """A dead database is a 503 where it is needed, with a time to come back, and no more (D12)."""
    settings = WebSettings(ping_timeout=0.5)
    async with (
        open_pool("postgresql://nobody@/nothing?host=/nonexistent") as pool,
        running(pool, settings) as away,
        httpx.AsyncClient(base_url=away.url, trust_env=False) as client,
    ):
        lives = await client.get("/healthz")
        refused = [
            await client.get("/readyz"),
            await client.get("/v1/me", headers={"Authorization": "Bearer hgo_some"}),
        ]
    assert lives.json() == {"status": "ok"}
    for response in refused:
        assert is_problem(response, 503, "unavailable")
        assert int(response.headers["retry-after"]) >= 1
        assert "nonexistent" not in response.text


async def test_a_port_in_use_is_an_error_at_once(api: Api) -> None:
    """A server that cannot listen says so to whoever starts it."""
    app = create_app(Stores.on(api.pool), SETTINGS, trio.Event())
    with trio.fail_after(10), pytest.raises(OSError, match="in use"):
        await server.serve(app, api.url.removeprefix("http://"), stop=trio.Event())


@pytest.mark.parametrize("bind", ["[::1]:0", "localhost:0", "unix:{tmp}/hango.sock"])
async def test_it_listens_where_it_is_told(pool: Pool, tmp_path: Path, bind: str) -> None:
    """An address of IPv6, a name and a path can be bound, and bound again after a shutdown."""
    path = str(tmp_path / "hango.sock") if bind.startswith("unix:") else None
    for _ in range(2):
        async with (
            running(pool, bind=bind.format(tmp=tmp_path)) as server_there,
            httpx.AsyncClient(
                base_url="http://hango" if path else server_there.url,
                transport=httpx.AsyncHTTPTransport(uds=path),
            ) as client,
        ):
            assert (await client.get("/healthz")).status_code == 200
