"""The HTTP server's connections: what they raise, how they end, what every answer has."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable

import pytest
import trio
from hostile.connections import GET
from hypercorn.protocol.http_stream import HTTPStream
from quart import Response
from trio.testing import wait_all_tasks_blocked

from hango.config.settings import load
from hango.db.pool import Pool
from hango.errors import ConfigError
from hango.serve import connection_limits
from hango.web.server import accept as server
from hango.web.server.limits import ConnectionLimits, RareLog

from support.api import Api
from support.served import read, read_one, served

SECRET = "the text of an error"  # noqa: S105  # it must not be logged


async def foreign_cancel() -> BaseException:
    """Return a cancellation of another scope."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            caught: BaseException = error
    return caught


RAISED: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(SECRET),
    "interrupt": lambda: KeyboardInterrupt(SECRET),
    "generator exit": lambda: GeneratorExit(SECRET),
    "memory": lambda: MemoryError(SECRET),
    "group": lambda: BaseExceptionGroup(SECRET, [SystemExit(SECRET), ValueError(SECRET)]),
}


@pytest.mark.rule(27)
async def test_whatever_a_request_raises_costs_that_request(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """S-H1, R-F1: it is answered 500; the process and a request under way live, and the log is safe."""
    cancelled = await foreign_cancel()
    faults = {**RAISED, "cancelled": lambda: cancelled}
    async with served(pool) as it, it.client() as client:
        other = await it.hold()
        for fault in faults.values():

            async def answer(make: Callable[[], BaseException] = fault) -> Response:
                raise make()

            it.answer = answer
            response = await client.get("/raise")
            assert response.status_code == 500
        it.release.set()
        assert (await client.get("/healthz")).status_code == 200
        assert (await other.receive_some()).startswith(b"HTTP/1.1 200")
        await other.aclose()
    lines = [
        record.getMessage() for record in caplog.records if record.name == "hango.web.server.accept"
    ]
    assert any("SystemExit at " in line and "on_raise" in line for line in lines)
    assert SECRET not in "\n".join(lines)


@pytest.mark.rule(27)
@pytest.mark.parametrize("name", [*RAISED, "cancelled"])
async def test_whatever_a_connection_raises_costs_that_connection(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """S-H1: a fault in hypercorn, in the task that reads, ends nothing but that connection."""
    cancelled = await foreign_cancel()
    handle = HTTPStream.handle

    async def faulty(self: HTTPStream, event: object) -> None:
        if getattr(event, "raw_path", b"") == b"/boom":
            raise cancelled if name == "cancelled" else RAISED[name]()
        await handle(self, event)  # type: ignore[arg-type]  # whatever hypercorn passes

    monkeypatch.setattr(HTTPStream, "handle", faulty)
    async with served(pool) as it, it.client() as client:
        other = await it.hold()
        stream = await it.connect(b"GET /boom HTTP/1.1\r\nHost: hango\r\n\r\n")
        assert await read(stream) == b""
        assert (await client.get("/healthz")).status_code == 200
        it.release.set()
        assert (await other.receive_some()).startswith(b"HTTP/1.1 200")
        await stream.aclose()
        await other.aclose()
    assert "a connection failed: " in caplog.text or name == "cancelled"
    assert SECRET not in caplog.text


async def test_a_fault_that_happens_often_is_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    """S-M2: what a client can repeat does not fill the log; what was left out is counted later."""
    rare = RareLog(logging.getLogger("test"))
    for _ in range(100):
        rare.log("it happened")
    assert len(caplog.records) == RareLog.LINES
    rare._since -= RareLog.WINDOW
    rare.log("it happened")
    assert [record.getMessage() for record in caplog.records[RareLog.LINES :]] == [
        "95 more lines like the last were left out",
        "it happened",
    ]


# --- its end --------------------------------------------------------------------------------


async def test_at_shutdown_unused_connections_close_and_others_are_told(pool: Pool) -> None:
    """An answer says that it is the last; half a head is not waited for, nor what was pipelined."""
    async with served(pool, graceful=3600) as it:
        held = await it.hold()
        await held.send_all(GET * 5)
        others = [await it.connect(said) for said in (b"", b"GET /hea", GET)]
        await read_one(others[2])
        await wait_all_tasks_blocked(0.02)
        it.stop.set()
        for stream in others:
            assert await read(stream) == b""
        it.release.set()
        answer = await read(held)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert b"connection: close" in answer.lower()
        for stream in (held, *others):
            await stream.aclose()


def test_the_limits_are_settings() -> None:
    """N45: how long a connection may be idle, and how many there may be, is for the operator to say."""
    environ = {
        "HANGO_KEEP_ALIVE": "650s",
        "HANGO_MAX_CONNECTIONS": "7",
        "HANGO_MAX_CONNECTIONS_PER_PEER": "5",
    }
    assert connection_limits(load({})) == ConnectionLimits()
    expected = ConnectionLimits(keep_alive=650, connections=7, per_peer=5)
    assert connection_limits(load(environ)) == expected


# --- every answer ---------------------------------------------------------------------------


async def test_every_answer_forbids_sniffing(api: Api) -> None:
    """S-L12: also the server's own refusals, and once."""
    for said in (
        GET,
        b"GET /docs HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /v1/me HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        stream = await api.connect()
        await stream.send_all(said)
        answer = await read_one(stream)
        await stream.aclose()
        assert answer.lower().count(b"\r\nx-content-type-options: nosniff\r\n") == 1, answer


# --- the version of hypercorn ---------------------------------------------------------------


def test_the_hypercorn_here_was_tested() -> None:
    """After an upgrade the table of hostile connections is to be run, and the version added."""
    assert importlib.metadata.version("hypercorn") in server.TESTED_HYPERCORN


@pytest.mark.parametrize(
    ("version", "ends"), [("0.18.1", "warned"), ("0.19.0", "refused"), ("1.0", "refused")]
)
def test_another_hypercorn_is_told(version: str, ends: str, caplog: pytest.LogCaptureFixture) -> None:
    """A patch is a warning; another series is refused, since methods of it are overridden."""
    if ends == "refused":
        with pytest.raises(ConfigError, match="install 0"):
            server.check_hypercorn(version)
    else:
        server.check_hypercorn(version)
        assert f"hypercorn {version} was not tested" in caplog.text
