"""What http_fetch makes of answers: long, packed, broken, slow or without end."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from hango.domain import ToolUseBlock
from hango.testing import MemoryLedger
from hango.tools import AllowedHosts, Registry
from hango.tools.builtin import http_fetch as module
from hango.tools.builtin import make_http_fetch
from hango.tools.fetch import Exchange, exchange

from support.browser import CONTEXT, Browser, Names, browser, fetched, refused
from support.web_server import Reply, ok, serve

pytestmark = pytest.mark.rule(22)

# --- bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream"])
async def test_binary_content_is_announced(nursery: trio.Nursery, kind: str) -> None:
    """Its type and size, not its bytes."""
    result = await fetched(nursery, ok(b"\x89PNG" * 10, kind=kind))
    assert result.for_llm == f"status: 200 OK\ntype: {kind}\n\n[binary content of 40 bytes, not shown]"


async def test_binary_content_under_a_text_type_is_announced(nursery: trio.Nursery) -> None:
    """NUL bytes are no text, whatever the label says."""
    result = await fetched(nursery, ok(b"a\0b"))
    assert result.for_llm.endswith("[binary content of 3 bytes, not shown]")


@pytest.mark.parametrize(
    ("limit", "shown"), [(4, "aaaa"), (5, "aaaaü"[:4]), (6, "aaaaü"), (7, "aaaaü")]
)
async def test_the_content_is_cut_at_max_bytes(nursery: trio.Nursery, limit: int, shown: str) -> None:
    """E11, C10: on a character boundary, and it says so."""
    result = await fetched(nursery, ok("aaaaü".encode()), max_bytes=limit)
    notice = f"\n[cut: only the first {limit} bytes are shown]" if limit < 6 else ""
    assert result.for_llm.partition("\n\n")[2] == shown + notice


@pytest.mark.parametrize("wrong", [0, -1, 1024 * 1024 + 1, "64", 1.5, None])
async def test_max_bytes_is_bounded(nursery: trio.Nursery, wrong: object) -> None:
    """E11: at most 1 MiB, at least one byte."""
    result = await fetched(nursery, ok(b""), max_bytes=wrong)
    assert result.is_error
    assert "max_bytes" in result.for_llm


async def test_a_packed_body_is_unpacked(nursery: trio.Nursery) -> None:
    """E11: up to the bound."""
    page = ok(gzip.compress(b"z" * 1_000_000), "Content-Encoding: gzip")
    result = await fetched(nursery, page, max_bytes=1000)
    assert (
        result.for_llm.partition("\n\n")[2]
        == "z" * 1000 + "\n[cut: only the first 1000 bytes are shown]"
    )


async def _endless(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send_all(b"400\r\n" + b"x" * 1024 + b"\r\n")


async def test_an_endless_body_is_cut_and_the_connection_closed(nursery: trio.Nursery) -> None:
    """E11: the server notices at once."""
    server = await serve(nursery, {"/": _endless})
    result = await browser(server).get(f"http://good.test:{server.port}/", max_bytes=5000)
    assert "[cut: only the first 5000 bytes are shown]" in result.for_llm
    while not server.closed:
        await trio.lowlevel.checkpoint()


BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
    "bad status": b"HTTP/1.1 999999 Never\r\n\r\n",
    "bad length": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
    "body too short": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
    "packed twice": ok(gzip.compress(gzip.compress(b"a")), "Content-Encoding: gzip, gzip"),
    "packed twice in two headers": ok(b"a", "Content-Encoding: gzip", "Content-Encoding: gzip"),
    "packed as br": ok(b"a", "Content-Encoding: br"),
    "not packed": ok(b"a", "Content-Encoding: gzip"),
    "packed and cut": ok(gzip.compress(b"a" * 99)[:-9], "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
async def test_a_broken_answer_is_an_error_result(nursery: trio.Nursery, reply: bytes) -> None:
    """E11: whatever a server sends instead of HTTP."""
    assert refused(await fetched(nursery, reply))


async def test_a_body_longer_than_declared_ends_where_it_was_declared(nursery: trio.Nursery) -> None:
    """E11: the rest is not this answer's."""
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nabcdef"
    assert (await fetched(nursery, reply)).for_llm.endswith("\n\nab")


async def test_a_closed_port_is_an_error_result(nursery: trio.Nursery) -> None:
    """Nobody listens."""
    server = await serve(nursery)
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await trio.testing.wait_all_tasks_blocked()
        result = await browser(server).get(f"http://good.test:{server.port}/")
    assert refused(result, "no connection")


# --- time -----------------------------------------------------------------------------------


async def _never(_: object = None) -> Sequence[str]:
    await trio.sleep_forever()
    raise AssertionError


async def _drip(stream: trio.abc.Stream, head: bytes) -> None:
    await stream.send_all(head)
    while True:
        await trio.sleep(0.02)
        await stream.send_all(b"x")


async def _drip_head(stream: trio.abc.Stream) -> None:
    await _drip(stream, b"HTTP/1.1 200 OK\r\nX-Slow: ")


async def _drip_body(stream: trio.abc.Stream) -> None:
    await _drip(stream, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")


async def _silent(_: trio.abc.Stream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("reply", [_drip_head, _drip_body, _silent], ids=lambda f: f.__name__)
async def test_the_whole_call_has_one_deadline(
    nursery: trio.Nursery, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E12: bytes that keep coming do not prolong it, and the connection is closed."""
    monkeypatch.setattr(module, "TOTAL_TIMEOUT", 0.2)
    server = await serve(nursery, {"/": reply})
    result = await browser(server).get(f"http://good.test:{server.port}/")
    assert refused(result, "longer than 0.2 s")
    nursery.cancel_scope.cancel()


async def test_names_count_towards_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    """E12: a resolver that does not answer ends the call after five seconds."""
    registry = Registry()
    registry.register(make_http_fetch(AllowedHosts.parse(["good.test"]), Exchange(_never)))
    view = registry.view([], timeout=30, result_limit=1000)
    call = ToolUseBlock("c", "http_fetch", {"url": "http://good.test"})
    result = await view.call(call, CONTEXT, MemoryLedger())
    assert refused(result, "longer than 5 s")
    assert autojump_clock.current_time() == pytest.approx(5, abs=0.1)


async def test_tls_that_never_begins_counts_towards_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E12: a server that takes the connection and says nothing."""
    monkeypatch.setattr(exchange, "CONNECT_TIMEOUT", 0.1)
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        port = listener.socket.getsockname()[1]
        tool = Browser([f"good.test:{port}"], Names({"good.test": [["127.0.0.1"]]}))
        assert refused(await tool.get(f"https://good.test:{port}/"), "no connection")


async def test_a_cancelled_fetch_closes_its_connection(nursery: trio.Nursery) -> None:
    """C07: the run ends at once, and the server is let go."""
    server = await serve(nursery, {"/": _endless_silence})
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            inner.start_soon(browser(server).get, f"http://good.test:{server.port}/")
            while not server.requests:
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert scope.cancelled_caught
    while not server.closed:
        await trio.lowlevel.checkpoint()


async def _endless_silence(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\n")
