"""The one way providers speak HTTP: where clients are made, and how an answer is read.

One rule: a stream is a client.  `open_stream` makes one, sends one request and closes both, so nobody
owns a pool, no connection outlives its turn, and a provider needs no opening and closing.  It costs a
TLS handshake a turn, noise beside a model; the certificates, which are what makes a client dear, are
read once.  Proxies, netrc and certificate files of the environment are honoured: which way models are
reached is the operator's choice.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import cast

import attrs
import httpx
import trio

from hango.codec import cut_text
from hango.errors import ProviderError, ProviderStreamBroken
from hango.http_client import certificates, close_chunks
from hango.providers import failures

CONNECT_TIMEOUT = 10.0  # seconds; a host that takes longer is taken for away
MAX_ANSWER = 64 * 1024 * 1024  # bytes of one answer on the wire, framing included
MAX_ERROR_BODY = 64 * 1024  # bytes after which no more is read


@attrs.frozen
class Call:
    """One request to a provider.

    Attributes:
        silence: seconds without a byte after which the stream counts as broken.
        secret: what must not appear in an error, whatever the server says.
    """

    provider: str
    url: httpx.URL
    headers: Mapping[str, str]
    body: bytes
    silence: float
    secret: str = attrs.field(default="", repr=False)


@attrs.define
class Body:
    """The bytes of one answer, as they come.

    Not an async generator: those must be closed by whoever started them, and this one is given away.
    """

    content_type: str
    _call: Call
    _chunks: AsyncGenerator[bytes, None]
    _size: int = 0

    async def read(self, patience: float = math.inf) -> bytes:
        """Return the next bytes, empty at the end, or after *patience* seconds without any.

        Raises:
            ProviderStreamBroken: the connection broke or went silent, or the answer has no end.
        """
        with trio.move_on_after(patience):
            try:
                chunk = await anext(self._chunks, b"")
            except httpx.HTTPError as error:
                raise _broken(error, self._call) from None
            self._size += len(chunk)
            if self._size > MAX_ANSWER:
                raise ProviderStreamBroken(
                    f"{self._call.provider} sent more than {MAX_ANSWER} bytes", code="answer_too_large"
                )
            return chunk
        return b""


@asynccontextmanager
async def open_stream(call: Call) -> AsyncIterator[Body]:
    """Send *call* and yield the body of its answer; leaving closes the connection.

    Raises:
        ProviderError: nobody is there, or the answer is an error.
        ProviderStreamBroken: no answer came.
    """
    async with _client(call.silence) as client:
        response = await _send(client, call)
        chunks = cast("AsyncGenerator[bytes, None]", response.aiter_bytes())
        try:
            body = Body(response.headers.get("content-type", ""), call, chunks)
            if not response.is_success:
                raise await _refusal(response, body, call)
            yield body
        finally:
            await close_chunks(chunks)


def _client(silence: float) -> httpx.AsyncClient:
    """Make a client for one request: the only place in providers that does."""
    timeout = httpx.Timeout(silence, connect=min(CONNECT_TIMEOUT, silence))
    return httpx.AsyncClient(verify=certificates(trust_env=True), timeout=timeout)


async def _send(client: httpx.AsyncClient, call: Call) -> httpx.Response:
    request = client.build_request("POST", call.url, headers=dict(call.headers), content=call.body)
    try:
        return await client.send(request, stream=True)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        raise _unreachable(error, call) from None
    except httpx.HTTPError as error:
        raise _broken(error, call) from None
    except (httpx.InvalidURL, ValueError) as error:
        # a header or address that cannot be sent; the text may quote it
        raise ProviderError(
            f"{call.provider} cannot be asked: {type(error).__name__}", code="invalid_request"
        ) from None


async def _refusal(response: httpx.Response, body: Body, call: Call) -> ProviderError:
    """Read an error answer; how much of it can be read does not matter."""
    said = b""
    with trio.move_on_after(call.silence):
        try:
            while len(said) < MAX_ERROR_BODY and (chunk := await body.read()):
                said += chunk
        except ProviderStreamBroken:
            pass  # the status is known, and that is what counts
    return failures.to_error(
        failures.from_body(response.status_code, said),
        provider=call.provider,
        secret=call.secret,
        should_retry=response.headers.get("x-should-retry", ""),
        retry_after=failures.read_retry_after(response.headers, datetime.now(UTC)),
    )


def _unreachable(error: httpx.HTTPError, call: Call) -> ProviderError:
    """Tell why nobody was reached; httpx's text is the system's here, and says what to mend."""
    why = cut_text(" ".join(str(error).split()), 200) or type(error).__name__
    return ProviderError(
        f"{call.provider} cannot be reached at {_place(call.url)}: {why}",
        code="connect_error",
        retryable="CERTIFICATE" not in why,  # the next try would meet the same one
    )


def _broken(error: httpx.HTTPError, call: Call) -> ProviderStreamBroken:
    """Tell what ended a stream: silence or a lost connection.  httpx's own text is left out."""
    if isinstance(error, httpx.TimeoutException):
        return ProviderStreamBroken(
            f"{call.provider} was silent for {call.silence:g} s", code="timeout", retryable=True
        )
    return ProviderStreamBroken(
        f"the connection to {call.provider} broke ({type(error).__name__})",
        code="connection_lost",
        retryable=True,
    )


def _place(url: httpx.URL) -> str:
    """Return scheme, host and port: no credentials, no path."""
    return f"{url.scheme}://{url.netloc.decode()}"
