"""A client that says requests as they are, sound or not, and reads what comes."""

from __future__ import annotations

import contextlib
from collections import Counter
from urllib.parse import urlsplit

import attrs
import trio
from hostile.fuzz import Request, Requests

_PATIENCE = 30.0  # seconds an answer may take; then the server is held up


@attrs.define
class Client:
    """Says requests over one connection at a time, kept as long as the server keeps it.

    Attributes:
        statuses: how often each was answered.
        failures: requests that were answered by an error of the server's, or not at all.
    """

    url: str
    requests: Requests
    statuses: Counter[int] = attrs.field(factory=Counter)
    failures: list[tuple[int, bytes]] = attrs.field(factory=list)
    connections: int = 0
    _stream: trio.SocketStream | None = None
    _buffer: bytes = b""

    async def say(self, count: int) -> None:
        """Say *count* requests, one after the other."""
        for _ in range(count):
            request = self.requests.make()
            with trio.fail_after(_PATIENCE):
                status, body = await self._exchange(request)
            self.statuses[status] += 1
            if not 200 <= status < 500:
                self.failures.append((status, request.data[:2000]))
            elif status in {201, 202}:
                self.requests.learn(request.makes, body)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)
            self._stream, self._buffer = None, b""

    async def _exchange(self, request: Request) -> tuple[int, bytes]:
        """Return status and body of the answer; the status is 0 when there is none."""
        stream = await self._connected()
        with contextlib.suppress(trio.BrokenResourceError):  # an answer may be there all the same
            await stream.send_all(request.data)
        try:
            return await self._answer(stream, request)
        except (trio.BrokenResourceError, EOFError):
            await self.close()
            return 0, b""

    async def _connected(self) -> trio.SocketStream:
        if self._stream is None:
            target = urlsplit(self.url)
            self._stream = await trio.open_tcp_stream(target.hostname or "", target.port or 80)
            self.connections += 1
        return self._stream

    async def _answer(self, stream: trio.SocketStream, request: Request) -> tuple[int, bytes]:
        status, headers = 100, b""
        while status < 200:
            head, headers = (await self._until(stream, b"\r\n\r\n")).split(b"\r\n", 1)
            status, headers = int(head.split(b" ")[1]), headers.lower()
        length = 0 if request.method == "HEAD" else _length(headers)
        while len(self._buffer) < length:
            await self._more(stream)
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        if b"\r\nconnection: close" in b"\r\n" + headers:
            await self.close()
        return status, body

    async def _until(self, stream: trio.SocketStream, end: bytes) -> bytes:
        while end not in self._buffer:
            await self._more(stream)
        found, _, self._buffer = self._buffer.partition(end)
        return found

    async def _more(self, stream: trio.SocketStream) -> None:
        data = await stream.receive_some()
        if not data:
            raise EOFError
        self._buffer += data


def _length(headers: bytes) -> int:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0
