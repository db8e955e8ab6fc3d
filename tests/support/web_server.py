"""A web server of raw bytes: it answers what it is told to, right or wrong, and keeps count."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import attrs
import trio

Reply = bytes | Callable[[trio.abc.Stream], Awaitable[None]]
"""What a path is answered with: bytes, or a function that writes them; then the connection closes."""

# For good.test, self-signed, valid from 2020 to 2120; the key opens nothing but these tests.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBcjCCARmgAwIBAgIBATAKBggqhkjOPQQDAjAVMRMwEQYDVQQDDApoYW5nbyB0
ZXN0MCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAVMRMwEQYDVQQD
DApoYW5nbyB0ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAESl9SfJwMSXVq
g8+0Krt+rQ5d9A+dh3cWZSFWf67jU68sUYyk0lWD7KovJ0HQGuq4ZzrrxUop6+YE
uathZ2Kv6aNYMFYwFAYDVR0RBA0wC4IJZ29vZC50ZXN0MA8GA1UdEwEB/wQFMAMB
Af8wHQYDVR0OBBYEFKAWjf/xpkyY9V5THO+N6scKovQpMA4GA1UdDwEB/wQEAwIC
hDAKBggqhkjOPQQDAgNHADBEAiAgRRD7UhJM62FQzw8HgGzpkrNfs0Pt7lU9QLNF
MMbOHwIgVriV6Es7UhW/1R6p5AnQr28AGf3Q12sntU0xjRmHU0o=
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIAUSkaiFuI6S/2lX6BhKfPJflt4ze4DgxEcsdsfiM06SoAoGCCqGSM49
AwEHoUQDQgAESl9SfJwMSXVqg8+0Krt+rQ5d9A+dh3cWZSFWf67jU68sUYyk0lWD
7KovJ0HQGuq4ZzrrxUop6+YEuathZ2Kv6Q==
-----END EC PRIVATE KEY-----
"""


@attrs.define
class WebServer:
    """One server.

    Attributes:
        replies: by request target (path and query).
        requests: heads received, in the order they came.
        names: server names asked for in TLS, in the same order.
        closed: connections the client has closed.
    """

    replies: Mapping[str, Reply]
    requests: list[bytes] = attrs.field(factory=list)
    names: list[str | None] = attrs.field(factory=list)
    closed: int = 0
    port: int = 0

    async def answer(self, stream: trio.abc.Stream) -> None:
        """Answer one request, then wait until the client is gone."""
        async with stream:
            try:
                head = await self._read_head(stream)
                reply = self.replies.get(head.split(b" ")[1].decode(), ok(b"?", status="404 Not Found"))
                await (stream.send_all(reply) if isinstance(reply, bytes) else reply(stream))
                if isinstance(stream, trio.SocketStream):
                    await stream.send_eof()
                while await stream.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass  # the client has hung up, or did not like our certificate
            finally:
                self.closed += 1

    async def _read_head(self, stream: trio.abc.Stream) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        self.requests.append(head)
        return head


def ok(body: bytes, *headers: str, kind: str = "text/plain", status: str = "200 OK") -> bytes:
    """Return a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def moved(location: str, status: int = 302) -> bytes:
    """Return a redirect."""
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    return head.encode()


async def serve(
    nursery: trio.Nursery,
    replies: Mapping[str, Reply] | None = None,
    *,
    host: str = "127.0.0.1",
    tls: bool = False,
) -> WebServer:
    """Start a server in *nursery*; it ends with it."""
    server = WebServer(replies or {})
    handler = partial(_over_tls, server) if tls else server.answer
    listeners: Sequence[trio.SocketListener] = await nursery.start(
        partial(trio.serve_tcp, handler, 0, host=host)
    )
    server.port = listeners[0].socket.getsockname()[1]
    return server


async def _over_tls(server: WebServer, stream: trio.SocketStream) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context)
    context.sni_callback = lambda _socket, name, _context: server.names.append(name)
    await server.answer(trio.SSLStream(stream, context, server_side=True, https_compatible=True))


def _load(context: ssl.SSLContext) -> None:

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(CERTIFICATE + KEY)
        file.flush()
        context.load_cert_chain(file.name)


def trusting() -> ssl.SSLContext:
    """Return what trusts this server and nobody else."""
    return ssl.create_default_context(cadata=CERTIFICATE)
