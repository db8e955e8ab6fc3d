"""The Chat Completions adapter and the network: breaks, silence, leaving."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import trio
import trio.testing

from hango.domain import (
    BlockStart,
    ProviderEvent,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
)
from hango.errors import ProviderError, ProviderStreamBroken
from hango.http_client import certificates
from hango.providers import OpenAIProvider
from hango.providers.body import EventReader
from hango.providers.sse import MAX_EVENT
from hango.providers.stream import TAIL_TIMEOUT

from support.llm_server import (
    Reply,
    chunked_reply,
    delta,
    finish,
    serve_llm,
    sse,
    stream_reply,
)
from support.provider_calls import REQUEST, WHOLE, ask, failure

BEGUN = [BlockStart(1, TextBlock("")), TextDelta(1, "Hi")]


# --- connections -------------------------------------------------------------------------------


@pytest.mark.rule(16)
async def test_nobody_there_is_retryable_and_says_where() -> None:
    """A refused connection; without what an address may hold besides."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ProviderError) as caught:
            await ask(OpenAIProvider(f"http://u:secret@127.0.0.1:{port}/v1?k=secret"))
    assert (caught.value.code, caught.value.retryable) == ("connect_error", True)
    assert f"http://127.0.0.1:{port}" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_https_to_a_port_of_http_says_what_is_wrong() -> None:
    """W-L2: the reason is found where the library has put it."""

    async def refuse(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(1)
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, refuse, [listener])
        with pytest.raises(ProviderError, match="WRONG_VERSION_NUMBER") as caught:
            await ask(OpenAIProvider(f"https://127.0.0.1:{listener.socket.getsockname()[1]}"))
        nursery.cancel_scope.cancel()
    assert caught.value.code == "connect_error"


@pytest.mark.parametrize(
    ("variable", "value", "code", "said"),
    [
        ("ALL_PROXY", "socks5://u:hunter2@127.0.0.1:1080", "invalid_proxy", "httpx[socks]"),
        ("ALL_PROXY", "gopher://u:hunter2@127.0.0.1:1080", "invalid_proxy", "gopher"),
        ("HTTP_PROXY", "http://[::1", "invalid_proxy", "HTTP_PROXY"),
        ("SSL_CERT_FILE", "/nonexistent/hunter2.pem", "invalid_certificates", "SSL_CERT_FILE"),
    ],
)
@pytest.mark.rule(27)
async def test_an_environment_no_client_can_be_made_of_is_an_error_of_the_provider(
    variable: str, value: str, code: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: it names the variables and the reason, and no password; it is not tried again."""
    certificates.cache_clear()
    monkeypatch.setenv(variable, value)
    with pytest.raises(ProviderError) as caught:
        await ask(OpenAIProvider("http://example.com"))
    certificates.cache_clear()
    assert (caught.value.code, caught.value.retryable) == (code, False)
    assert said in str(caught.value)
    assert "hunter2@" not in str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(()),
        Reply((b"HTTP/1.1 200",)),
        Reply((b"nonsense\r\n\r\n",)),
        Reply((), reset=True),
    ],
    ids=["closed", "cut head", "no HTTP", "reset"],
)
@pytest.mark.rule(16)
async def test_no_answer_is_a_broken_stream(reply: Reply) -> None:
    """A14: whatever ends a connection before its answer began."""
    error = await failure(reply)
    assert isinstance(error, ProviderStreamBroken)
    assert (error.code, error.retryable) == ("connection_lost", True)


@pytest.mark.parametrize(
    "reply",
    [
        chunked_reply(sse(delta(content="Hi"), done=False), whole=False),
        stream_reply(sse(delta(content="Hi"), done=False)),
    ],
    ids=["chunk missing", "clean end"],
)
@pytest.mark.rule(16)
async def test_what_came_before_the_break_is_told(reply: Reply) -> None:
    """A14: the events first, then the error."""
    told: list[ProviderEvent] = []
    assert isinstance(await failure(reply, told), ProviderStreamBroken)
    assert told == BEGUN


async def test_what_came_in_one_read_with_an_error_is_told_first() -> None:
    """A13: content and error in one piece of the network."""
    told: list[ProviderEvent] = []
    body = sse(delta(content="Hi"), {"error": {"message": "boom"}})
    assert "boom" in str(await failure(stream_reply(body), told))
    assert told == BEGUN


@pytest.mark.parametrize(
    "reply",
    [
        chunked_reply(sse(delta(content="Hi"), finish("stop"), done=False), whole=False),
        stream_reply(sse(delta(content="Hi"), finish("stop"), done=False)),
    ],
    ids=["chunk missing", "clean end"],
)
async def test_a_break_after_the_end_is_no_matter(reply: Reply) -> None:
    """A14: the finish reason was seen, so the answer is whole."""
    async with serve_llm(reply) as server:
        events = await ask(OpenAIProvider(server.url))
    assert events[-1] == Stop(StopReason.END_TURN)


async def test_a_server_that_stays_after_the_end_is_left(mock_clock: trio.testing.MockClock) -> None:
    """One that says neither [DONE] nor good-bye holds nobody for the whole of the timeout."""
    reply = stream_reply(sse(delta(content="Hi"), finish("stop"), done=False), trio.Event())
    told: list[ProviderEvent] = []
    async with serve_llm(reply) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask, OpenAIProvider(server.url, timeout=60.0), REQUEST, told)
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(TAIL_TIMEOUT)
        await server.closed_early.wait()
    assert told[-1] == Stop(StopReason.END_TURN)


# --- silence -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [(), (b"HTTP/1.1 200 OK\r\n",), (b"HTTP/1.1 200 OK\r\n\r\n", WHOLE[:20].encode())],
    ids=["no head", "half a head", "half a body"],
)
@pytest.mark.rule(16)
async def test_silence_breaks_the_stream(pieces: tuple[bytes, ...]) -> None:
    """Wherever it begins; and the connection is closed."""
    error = await failure(Reply((*pieces, trio.Event())), silence=0.05)
    assert isinstance(error, ProviderStreamBroken)
    assert (error.code, error.retryable) == ("timeout", True)
    assert "0.05 s" in str(error)


@pytest.mark.rule(16)
async def test_comments_are_signs_of_life(mock_clock: trio.testing.MockClock) -> None:
    """A model that thinks longer than the timeout is kept alive by its server."""
    beats = [trio.Event() for _ in range(6)]
    pieces = [piece for beat in beats for piece in (b": PROCESSING\n\n", beat)]
    told: list[ProviderEvent] = []
    async with serve_llm(stream_reply(*pieces, WHOLE)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask, OpenAIProvider(server.url, timeout=60.0), REQUEST, told)
        for beat in beats:
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(40.0)
            beat.set()
    assert told[-1] == Stop(StopReason.END_TURN)


@pytest.mark.rule(16)
async def test_the_last_sign_of_life_counts(mock_clock: trio.testing.MockClock) -> None:
    """The twin of the test before: without the comments, the same time is silence."""
    async with serve_llm(stream_reply(trio.Event())) as server, trio.open_nursery() as nursery:

        async def jump() -> None:
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(61.0)

        nursery.start_soon(jump)
        with pytest.raises(ProviderStreamBroken):
            await ask(OpenAIProvider(server.url, timeout=60.0))


async def test_an_error_that_drips_is_told_by_its_status(mock_clock: trio.testing.MockClock) -> None:
    """Its body may take as long as a silence may, and no longer."""
    beats = [trio.Event() for _ in range(3)]
    drops = [piece for beat in beats for piece in (b"x", beat)]
    errors: list[ProviderError] = []

    async def ask_for_an_error(url: str) -> None:
        with pytest.raises(ProviderError) as caught:
            await ask(OpenAIProvider(url, timeout=60.0))
        errors.append(caught.value)

    head = b"HTTP/1.1 503 No\r\ncontent-length: 9\r\n\r\n"
    async with serve_llm(Reply((head, *drops))) as server, trio.open_nursery() as nursery:
        nursery.start_soon(ask_for_an_error, server.url)
        for beat in beats[:2]:
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(40.0)
            beat.set()
    assert str(errors[0]) == "openai answered 503: xx"


# --- leaving -----------------------------------------------------------------------------------


async def leave(_: object) -> None:
    """Just leave the block."""


async def fail(_: object) -> None:
    """Leave it by an error."""
    raise LookupError


async def cancel(events: object) -> None:
    """Leave it by a cancel, while waiting for the next event."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await anext(events)  # type: ignore[call-overload]  # an iterator, seen through a plain name


@pytest.mark.parametrize("way", [leave, fail, cancel])
@pytest.mark.parametrize("begun", [0, 1, 2])
async def test_leaving_closes_the_connection(way: Callable[[object], object], begun: int) -> None:
    """At once, whatever the reason and however much was read; no generator is left to be collected."""
    hold = trio.Event()
    reply = stream_reply(sse(delta(content="Hi"), done=False), hold)
    async with serve_llm(reply) as server:
        try:
            async with OpenAIProvider(server.url, timeout=20).stream(REQUEST) as events:
                for _ in range(begun):
                    await anext(events)
                await way(events)  # type: ignore[misc]  # all three are async
        except LookupError:
            assert way is fail
        await server.closed_early.wait()


async def test_a_cancelled_call_is_cancelled() -> None:
    """While it waits for the head of the answer."""
    async with serve_llm(Reply((trio.Event(),))) as server:
        with trio.CancelScope() as scope:

            async def stop() -> None:
                while not server.received:
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop)
                await ask(OpenAIProvider(server.url, timeout=20))
        assert scope.cancelled_caught
        await server.closed_early.wait()


async def test_calls_do_not_know_each_other() -> None:
    """Many at once, of one provider; each has its own answer."""
    replies = [stream_reply(WHOLE) for _ in range(20)]
    answers: list[list[ProviderEvent]] = []
    async with serve_llm(*replies) as server:
        provider = OpenAIProvider(server.url)

        async def one() -> None:
            answers.append(await ask(provider))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
    assert len(answers) == 20
    assert all(answer == answers[0] for answer in answers)


async def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments keep a stream alive, but not for ever."""
    monkeypatch.setattr("hango.providers.http.MAX_ANSWER", 1000)
    error = await failure(stream_reply(": alive\n\n" * 500, WHOLE))
    assert isinstance(error, ProviderStreamBroken)
    assert error.code == "answer_too_large"


def test_a_document_without_end_is_refused() -> None:
    """A server that does not stream cannot fill the memory either."""
    reader = EventReader("p")
    assert reader.feed(b"{" + b" " * (MAX_EVENT - 1)) == []
    with pytest.raises(ProviderStreamBroken) as caught:
        reader.feed(b" ")
    assert caught.value.code == "event_too_large"
