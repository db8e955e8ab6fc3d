"""HTTP/1.1 as hango accepts it: hypercorn's protocol on h11, without what can be read in two ways.

Rule: what a proxy in front could read otherwise than h11 does is refused, and the connection ends:
bare CR and LF, folded lines, `Content-Length` beside `Transfer-Encoding` or given twice, versions
other than 1.0 and 1.1, methods in lower case.  `Upgrade` is ignored, which RFC 9110 §7.8 permits:
there is no WebSocket and no HTTP/2 here; a proxy can speak it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from itertools import chain

import h11
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Body, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import H11Protocol

from hango.codec import dump_json

MAX_HEAD = 32 * 1024  # bytes of request line and header fields; nginx takes as much, Node half
MAX_FIELDS = 1000  # header fields; each costs the event loop some microseconds
# bytes of an answer given to the socket at once, so that a slow reader makes progress one can see
CHUNK = 64 * 1024
NOSNIFF = (b"x-content-type-options", b"nosniff")

_REQUEST_LINE = re.compile(rb"([!-~]+) [!-~]+ HTTP/([0-9]\.[0-9])")
_CODES = {
    HTTPStatus.BAD_REQUEST: ("malformed", "The request cannot be read"),
    HTTPStatus.REQUEST_TIMEOUT: ("request_timeout", "The request did not arrive in time"),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        "headers_too_large",
        "The header fields are larger than this server accepts",
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("internal", "Something went wrong inside the server"),
    HTTPStatus.NOT_IMPLEMENTED: ("not_implemented", "This transfer encoding is not supported"),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "too_many_connections",
        "This server has as many connections as it may; try again soon",
    ),
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: (
        "http_version_not_supported",
        "This server speaks HTTP/1.1 and HTTP/1.0",
    ),
}


def error_body(status: int) -> bytes:
    """Return the ``application/problem+json`` body of a refusal that no request handler saw."""
    code, title = _CODES.get(HTTPStatus(status), _CODES[HTTPStatus.BAD_REQUEST])
    problem = {"type": f"urn:hango:problem:{code}", "title": title, "status": status}
    return dump_json({**problem, "code": code, "detail": title}).encode()


def error_headers(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of an answer with *body*, after which the connection is closed."""
    return [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        NOSNIFF,
    ]


def is_strict(lines: bytes) -> bool:
    """Return whether every CR and LF of *lines* is part of a CRLF, and no line continues another."""
    ends = lines.count(b"\r\n")
    folded = b"\n " in lines or b"\n\t" in lines
    return lines.count(b"\n") == lines.count(b"\r") == ends and not folded


def refuse_head(received: bytes) -> HTTPStatus | None:
    """Return the status to refuse a request with, from what has arrived of its head; None to go on.

    What is not checked here is checked by h11, which refuses it with 400, 431 or 501.
    """
    end = received.find(b"\r\n\r\n")
    head = received[:end] if end >= 0 else received.removesuffix(b"\r")
    if not is_strict(head):
        return HTTPStatus.BAD_REQUEST
    if len(head) > MAX_HEAD:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return _refuse_fields(head.split(b"\r\n")) if end >= 0 else None


def _refuse_fields(lines: list[bytes]) -> HTTPStatus | None:
    request = _REQUEST_LINE.fullmatch(lines[0])
    if request is None or request[1] != request[1].upper():
        return HTTPStatus.BAD_REQUEST
    if request[2] not in {b"1.0", b"1.1"}:
        return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
    if len(lines) - 1 > MAX_FIELDS:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    fields = [line.partition(b":") for line in lines[1:]]
    lengths = [value for name, _, value in fields if name.lower() == b"content-length"]
    encoded = any(name.lower() == b"transfer-encoding" for name, _, _ in fields)
    # RFC 9112 §6.1 and §6.3; RFC 9110 §8.6
    if (encoded and (lengths or request[2] == b"1.0")) or len(lengths) > 1 or b"," in b"".join(lengths):
        return HTTPStatus.BAD_REQUEST
    return None


class StrictConnection(h11.Connection):
    """The parser of one connection; uses what h11 documents, and nothing else of it.

    Attributes:
        method: of the request whose head was read last; empty while the next one arrives.
        closed: set it and nothing more is read.
        refused: something of the last request was refused here.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self.method = b""
        self.closed = False
        self.refused = False
        self._chunked = False

    @property
    def head_begun(self) -> bool:
        """Whether a part of a request's head has arrived, and not all of it."""
        return self.their_state is h11.IDLE and bool(self.trailing_data[0])

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """Return the next event; raises `h11.RemoteProtocolError` for what is refused."""
        if self.closed:
            return h11.ConnectionClosed()
        before = self.trailing_data[0]
        if self.their_state is h11.MUST_CLOSE and before:
            return h11.PAUSED  # behind a last request: h11 would refuse it, and the request with it
        if self.their_state is h11.IDLE:
            self.method = b""
            if status := refuse_head(before):
                self._refuse(status)
        event = super().next_event()
        if isinstance(event, h11.Request):
            return self._request(event)
        if self._chunked and isinstance(event, h11.Data | h11.EndOfMessage):
            read = before[: len(before) - len(self.trailing_data[0])]
            data = len(event.data) if isinstance(event, h11.Data) else 0
            if not is_strict(read[: len(read) - data]):
                self._refuse(HTTPStatus.BAD_REQUEST)
        return event

    def _request(self, event: h11.Request) -> h11.Request:
        names = {name for name, _ in event.headers}
        self.method = event.method
        self._chunked = b"transfer-encoding" in names
        if b"upgrade" not in names:
            return event
        return h11.Request(
            method=event.method,
            target=event.target,
            headers=[field for field in event.headers.raw_items() if field[0].lower() != b"upgrade"],
            http_version=event.http_version,
        )

    def _refuse(self, status: HTTPStatus) -> None:
        self.refused = True
        raise h11.RemoteProtocolError("refused", error_status_hint=status)


class Http1Protocol(H11Protocol):
    """hypercorn's HTTP/1.1 with the strict parser, and answers in pieces."""

    connection: StrictConnection

    def use_strict_parser(self) -> None:
        """Replace h11's own parser; to be called before anything is received."""
        self.connection = StrictConnection()

    async def refuse(self, status: HTTPStatus) -> None:
        """Answer with an error, and close the connection."""
        await self._send_error_response(status)
        await self.send(Closed())

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of an answer; a large one in pieces, of which only one is copied at a time."""
        for piece in _pieces(event):
            try:
                await super().stream_send(piece)
            except h11.LocalProtocolError:
                # the answer is the refusal of what came of the body meanwhile
                if not self.connection.refused:
                    raise

    async def _send_error_response(self, status_code: int) -> None:
        """Answer with an error in one piece, so that no answer of the application comes between."""
        body = error_body(status_code)
        headers = list(chain(error_headers(body), self.config.response_headers("h11")))
        data = self.connection.send(h11.Response(status_code=status_code, headers=headers))
        if self.connection.method != b"HEAD":
            data += self.connection.send(h11.Data(data=body))
        await self.send(RawData(data + self.connection.send(h11.EndOfMessage())))


def _pieces(event: StreamEvent) -> Iterator[StreamEvent]:
    if isinstance(event, Body):
        for start in range(0, len(event.data), CHUNK):
            yield Body(stream_id=event.stream_id, data=event.data[start : start + CHUNK])
        return
    if isinstance(event, Response) and NOSNIFF[0] not in {name.lower() for name, _ in event.headers}:
        event.headers.append(NOSNIFF)
    yield event
