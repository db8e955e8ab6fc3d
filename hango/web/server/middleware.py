"""What stands between the HTTP server and the application: requests the application could not bear."""

from __future__ import annotations

from urllib.parse import urlsplit

import trio
from hypercorn.typing import (
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    HTTPScope,
    Scope,
)
from quart_trio import QuartTrio

from hango.web.access import REQUEST_ID, Access, recorded


class RequestGuard:
    """The application as an ASGI callable that is only given what it can process.

    A target may be absolute (``GET http://host/path``, which a server must accept, RFC 9112 §3.2.2), or
    no path at all (``*``, or a bare query), on which the framework fails before it can answer.  A body
    may have no declared length, and some versions of the framework buffer such a body without a bound:
    here it ends one byte after the bound, and is refused for its size.  An answer after which the
    connection is closed says so.

    Args:
        app: the application.
        stop: set when the server is shutting down.
    """

    def __init__(self, app: QuartTrio, stop: trio.Event) -> None:
        self._app = app
        self._stop = stop
        self._max_body = int(app.config["MAX_CONTENT_LENGTH"]) + 1

    async def __call__(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        scope["path"] = _path_of(scope["path"])
        receive, send = _announce_close(scope, receive, send, self._stop)
        given = next((value for name, value in scope["headers"] if name.lower() == REQUEST_ID), b"")
        with recorded(scope["method"], given) as access:
            await self._app(scope, _cut_body(receive, self._max_body), _note_answer(access, send))


def _note_answer(access: Access, send: ASGISendCallable) -> ASGISendCallable:
    """Return a *send* that notes the status of the answer, and adds the request's id to it."""

    async def send_noting(event: ASGISendEvent) -> None:
        if event["type"] == "http.response.start":
            access.status = event["status"]
            event["headers"] = [*event["headers"], (REQUEST_ID, access.request_id.encode())]
        await send(event)

    return send_noting


def _path_of(target: str) -> str:
    if target.startswith("/"):
        return target
    try:
        path = urlsplit(target).path
    except ValueError:  # a host that cannot be one
        path = ""
    return path if path.startswith("/") else "/"


def _announce_close(
    scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable, stop: trio.Event
) -> tuple[ASGIReceiveCallable, ASGISendCallable]:
    """Return *receive*, and a *send* that adds ``Connection: close`` where the server will close.

    It does after an answer to a request whose body has not all been read, and while it shuts down.  A
    client that is not told would lose its next request (RFC 9112 §9.6).
    """
    fields = {name.lower(): value for name, value in scope["headers"]}
    coming = b"transfer-encoding" in fields or bool(fields.get(b"content-length", b"").strip(b"0"))

    async def receive_watched() -> ASGIReceiveEvent:
        nonlocal coming
        event = await receive()
        if event["type"] == "http.request" and not event["more_body"]:
            coming = False
        return event

    async def send_announcing(event: ASGISendEvent) -> None:
        if event["type"] == "http.response.start" and (coming or stop.is_set()):
            event["headers"] = [*event["headers"], (b"connection", b"close")]
        await send(event)

    return receive_watched, send_announcing


def _cut_body(receive: ASGIReceiveCallable, most: int) -> ASGIReceiveCallable:
    """Return a *receive* that passes on *most* bytes of the body and drops the rest."""
    left = most

    async def receive_cut() -> ASGIReceiveEvent:
        nonlocal left
        while True:
            event = await receive()
            if event["type"] != "http.request":
                return event
            if left == 0:
                continue
            body = event["body"][:left]
            left -= len(body)
            return {"type": "http.request", "body": body, "more_body": event["more_body"] and left > 0}

    return receive_cut
