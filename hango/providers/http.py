"""The HTTP client of all providers.

Rule: each stream has a client of its own.  `open_stream` makes it, sends one request and closes both,
so there is no pool, no connection outlives its turn, and a provider needs no opening and closing.  The
cost is a TLS handshake for each turn; the certificates are read once.  Proxies and certificate files of
the environment are used: how models are reached is the operator's choice.
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
from hango.redaction import redact

CONNECT_TIMEOUT = 10.0  # seconds; a host that takes longer is taken for away
MAX_ANSWER = 64 * 1024 * 1024  # bytes of one answer on the wire, framing included
MAX_ERROR_BODY = 64 * 1024  # bytes after which no more is read


@attrs.frozen
class HttpRequest:
    """One request to a provider.

    Attributes:
        silence: seconds without a byte after which the stream counts as broken.
        secret: the key; must not appear in an error, whatever the server answers.
        key_name: what people know the key as, may be empty.
    """

    provider: str
    url: httpx.URL
    headers: Mapping[str, str] = attrs.field(repr=False)  # the key is in them
    body: bytes = attrs.field(repr=False)
    silence: float
    secret: str = attrs.field(default="", repr=False)
    key_name: str = ""


@attrs.define
class ResponseBody:
    """The bytes of one answer, as they arrive.

    Not an async generator: the code that starts one must close it, and this is handed on.
    """

    content_type: str
    _request: HttpRequest
    _chunks: AsyncGenerator[bytes, None]
    _size: int = 0

    async def read(self, at_most: float = math.inf) -> bytes:
        """Return the next bytes; empty at the end, or after *at_most* seconds without any.

        Raises:
            ProviderStreamBroken: the connection broke or went silent, or the answer is too large.
        """
        with trio.move_on_after(at_most):
            try:
                chunk = await anext(self._chunks, b"")
            except httpx.HTTPError as error:
                raise _broken(error, self._request) from None
            self._size += len(chunk)
            if self._size > MAX_ANSWER:
                raise ProviderStreamBroken(
                    f"{self._request.provider} sent more than {MAX_ANSWER} bytes",
                    code="answer_too_large",
                )
            return chunk
        return b""


@asynccontextmanager
async def open_stream(request: HttpRequest) -> AsyncIterator[ResponseBody]:
    """Send *request* and yield the body of its answer; leaving closes the connection.

    Raises:
        ProviderError: the server cannot be asked or reached, or answers with an error.
        ProviderStreamBroken: it did not answer.
    """
    async with _client(request) as client:
        response = await _send(client, request)
        chunks = cast("AsyncGenerator[bytes, None]", response.aiter_bytes())
        try:
            body = ResponseBody(response.headers.get("content-type", ""), request, chunks)
            if not response.is_success:
                raise await _refusal(response, body, request)
            yield body
        finally:
            await close_chunks(chunks)


def _client(request: HttpRequest) -> httpx.AsyncClient:
    """Make a client for one request: the only place in providers that does."""
    timeout = httpx.Timeout(request.silence, connect=min(CONNECT_TIMEOUT, request.silence))
    try:
        trusted = certificates(trust_env=True)
    except Exception as error:  # noqa: BLE001  # a missing file, or one that holds something else
        raise _misconfigured(error, request, "certificates", "SSL_CERT_FILE, SSL_CERT_DIR") from None
    try:
        return httpx.AsyncClient(verify=trusted, timeout=timeout)
    except Exception as error:  # noqa: BLE001  # an unknown scheme, a missing package, no URL
        variables = "ALL_PROXY, HTTPS_PROXY, HTTP_PROXY, NO_PROXY"
        raise _misconfigured(error, request, "proxy", variables) from None


def _misconfigured(error: Exception, request: HttpRequest, what: str, variables: str) -> ProviderError:
    """Return the error of a client that the environment keeps from being made."""
    why = cut_text(redact(" ".join(str(error).split())), 300) or type(error).__name__
    return ProviderError(
        f"{request.provider} cannot be asked: the {what} named by the environment cannot be used "
        f"(see {variables}): {why}",
        code=f"invalid_{what}",
    )


async def _send(client: httpx.AsyncClient, request: HttpRequest) -> httpx.Response:
    built = client.build_request(
        "POST", request.url, headers=dict(request.headers), content=request.body
    )
    try:
        return await client.send(built, stream=True)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        raise _unreachable(error, request) from None
    except httpx.HTTPError as error:
        raise _broken(error, request) from None
    except (httpx.InvalidURL, ValueError) as error:
        # a header or address that cannot be sent; the exception's text may quote it
        raise ProviderError(
            f"{request.provider} cannot be asked: {type(error).__name__}", code="invalid_request"
        ) from None


async def _refusal(response: httpx.Response, body: ResponseBody, request: HttpRequest) -> ProviderError:
    """Return the error that an error answer means; its body may be cut or missing."""
    said = b""
    with trio.move_on_after(request.silence):
        try:
            while len(said) < MAX_ERROR_BODY and (chunk := await body.read()):
                said += chunk
        except ProviderStreamBroken:
            pass  # the status is known, and that is what counts
    return failures.to_error(
        failures.from_body(response.status_code, said),
        provider=request.provider,
        secret=request.secret,
        key_name=request.key_name,
        should_retry=response.headers.get("x-should-retry", ""),
        retry_after=failures.read_retry_after(response.headers, datetime.now(UTC)),
    )


def _unreachable(error: httpx.HTTPError, request: HttpRequest) -> ProviderError:
    """Return the error of a failed connection, with the system's reason."""
    why = cut_text(redact(_reason(error)), 200)
    return ProviderError(
        f"{request.provider} cannot be reached at {_place(request.url)}: {why}",
        code="connect_error",
        retryable="CERTIFICATE" not in why,  # the next try would meet the same one
    )


def _reason(error: BaseException) -> str:
    """Return the first text on the way from *error* to its cause; some exceptions on it have none."""
    found: BaseException | None = error
    while found is not None:
        if text := " ".join(str(found).split()):
            return text
        found = found.__cause__ or found.__context__
    return type(error).__name__


def _broken(error: httpx.HTTPError, request: HttpRequest) -> ProviderStreamBroken:
    """Return the error of a stream that ended early: silence or a lost connection."""
    if isinstance(error, httpx.TimeoutException):
        return ProviderStreamBroken(
            f"{request.provider} was silent for {request.silence:g} s", code="timeout", retryable=True
        )
    return ProviderStreamBroken(
        f"the connection to {request.provider} broke ({type(error).__name__})",
        code="connection_lost",
        retryable=True,
    )


def _place(url: httpx.URL) -> str:
    """Return scheme, host and port: no credentials, no path."""
    return f"{url.scheme}://{url.netloc.decode()}"
