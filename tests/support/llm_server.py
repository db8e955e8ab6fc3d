"""A scripted HTTP/1.1 server over a real socket, for tests of provider adapters.

Its one rule: it says exactly the bytes it is told, in the pieces it is told, and ends as it is told, so
that cuts, silence and broken endings are in the hands of the test.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import attrs
import trio

Piece: TypeAlias = bytes | trio.Event
"""Bytes are sent, an event is waited for."""

_PATIENCE = 300.0  # seconds a server lives at most, so that a test that hangs ends
# SO_LINGER on, for no time: close() sends a reset instead of a good-bye
_RESET = struct.pack("ii", 1, 0)


@attrs.frozen
class Reply:
    """What the server does with one connection: *pieces* in order, then a good-bye, or a reset."""

    pieces: tuple[Piece, ...]
    reset: bool = False


@attrs.frozen
class Received:
    """A request as it came; header names in lower case.

    Attributes:
        raw: the bytes of its body.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: Mapping[str, object]
    raw: bytes


Replying: TypeAlias = Reply | Callable[[Received], Reply]
"""What answers a request; a function looks at it first."""


@attrs.define
class LlmServer:
    """The running server.

    Attributes:
        port: on 127.0.0.1.
        received: every request, oldest first.
        closed_early: set once a client has left before its reply was over.
    """

    port: int
    _replies: list[Replying]
    received: list[Received] = attrs.field(factory=list)
    closed_early: trio.Event = attrs.field(factory=trio.Event)
    _asked: dict[int, trio.Event] = attrs.field(factory=dict)

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def asked(self, number: int = 1) -> trio.Event:
        """Return what is set once there have been *number* requests."""
        return self._asked.setdefault(number, trio.Event())

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection, one request, one reply."""
        async with stream:
            request = await _read_request(stream)
            self.received.append(request)
            self.asked(len(self.received)).set()
            replying = self._replies.pop(0)
            reply = replying if isinstance(replying, Reply) else replying(request)
            try:
                await _say(stream, reply)
            except trio.BrokenResourceError:
                self.closed_early.set()
                return
            if reply.reset:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


@asynccontextmanager
async def serve_llm(*replies: Replying) -> AsyncIterator[LlmServer]:
    """Serve *replies*, one for each connection, in order, until the block is left."""
    with trio.fail_after(_PATIENCE):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            server = LlmServer(listeners[0].socket.getsockname()[1], list(replies))
            nursery.start_soon(trio.serve_listeners, server.handle, listeners)
            yield server
            nursery.cancel_scope.cancel()


def stream_reply(*pieces: Piece | str, reset: bool = False) -> Reply:
    """Answer 200 with a body that ends with the connection."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return Reply((head, *map(_bytes, pieces)), reset)


def chunked_reply(*pieces: str, whole: bool = True) -> Reply:
    """Answer 200 with a body in HTTP chunks, a piece each; without the last one unless *whole*."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%s\r\n" % (len(data), data) for data in map(str.encode, pieces)]
    return Reply((head, *chunks, *([b"0\r\n\r\n"] if whole else [])))


def error_reply(status: int, body: str, **headers: str) -> Reply:
    """Answer *status*; underscores in header names stand for hyphens."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    data = body.encode()
    head = [f"HTTP/1.1 {status} No", f"content-length: {len(data)}", "connection: close", *lines]
    return Reply(("\r\n".join(head).encode() + b"\r\n\r\n", data))


def sse(*chunks: Mapping[str, object] | str, done: bool = True) -> str:
    """Write *chunks* as an event stream: objects as JSON, text as it is; then ``[DONE]``."""
    events = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join(events) + ("data: [DONE]\n\n" if done else "")


def delta(**fields: object) -> dict[str, object]:
    """Write a chunk with one delta."""
    return {"choices": [{"index": 0, "delta": fields}]}


def finish(reason: str | None) -> dict[str, object]:
    """Write the chunk that ends an answer."""
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def _bytes(piece: Piece | str) -> Piece:
    return piece.encode() if isinstance(piece, str) else piece


async def _say(stream: trio.SocketStream, reply: Reply) -> None:
    for piece in reply.pieces:
        if isinstance(piece, trio.Event):
            await _wait_or_gone(stream, piece)
        else:
            await stream.send_all(piece)


async def _wait_or_gone(stream: trio.SocketStream, event: trio.Event) -> None:
    """Wait for *event*, or for the client to leave: nothing else comes from it any more."""
    gone = False
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal gone
            with suppress(trio.BrokenResourceError):
                await stream.receive_some()
            gone = True
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        await event.wait()
        nursery.cancel_scope.cancel()
    if gone:
        raise trio.BrokenResourceError


async def _read_request(stream: trio.SocketStream) -> Received:
    data = await _read_until(stream, b"", lambda got: b"\r\n\r\n" in got)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    length = int(headers.get("content-length", "0"))
    body = await _read_until(stream, body, lambda got: len(got) >= length)
    method, target, _ = first.split(" ")
    return Received(method, target, headers, json.loads(body), body)


async def _read_until(stream: trio.SocketStream, data: bytes, enough: Callable[[bytes], bool]) -> bytes:
    while not enough(data):
        more = await stream.receive_some()
        if not more:
            raise trio.BrokenResourceError
        data += more
    return data
