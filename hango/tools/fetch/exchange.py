"""One request to one target: resolve once, check every address, connect to one that was checked.

Rule: a request contains no name, address, header, cookie, proxy or credential but those of its
`Target`; nothing of it is kept for the next one, not even the connection.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

import attrs
import httpx

from hango.codec import cut_text
from hango.errors import InvalidInput
from hango.http_client import certificates, close_chunks
from hango.tools.fetch.addresses import (
    IPAddress,
    Resolve,
    SystemResolver,
    is_public,
    read_addresses,
)
from hango.tools.fetch.body import ACCEPT_ENCODING
from hango.tools.fetch.targets import Target

MAX_ADDRESSES = 4  # tried, one after the other
CONNECT_TIMEOUT = 1.5  # seconds for each, so that one dead address leaves time for the next


@attrs.frozen
class FetchResponse:
    """The head of an answer, and its body as it arrives.

    Attributes:
        location: where it redirects to, None when it does not.
        length: its Content-Length, as the server wrote it.
    """

    status: int
    location: str | None
    content_type: str
    content_encoding: str
    length: str | None
    chunks: AsyncIterator[bytes]


@attrs.frozen
class Exchange:
    """How requests are made; chosen by code only, never by a setting.

    Attributes:
        resolve: called once for each request to a name.
        permits: which addresses may be connected to.
        certificates: authorities to trust; None for those that come with httpx.
    """

    resolve: Resolve = attrs.field(factory=SystemResolver)
    permits: Callable[[IPAddress], bool] = is_public
    certificates: ssl.SSLContext | None = None

    @asynccontextmanager
    async def get(self, target: Target) -> AsyncIterator[FetchResponse]:
        """Request *target* and yield the answer; leaving closes the connection.

        Raises:
            InvalidInput: an address is not permitted, there is none, or none answers.
            httpx.HTTPError: the answer is not HTTP, or the connection broke.
        """
        addresses = await self._addresses(target)
        async with self._client() as client:
            response = await _first(client, target, addresses)
            chunks = aiter(response.stream)  # type: ignore[arg-type]  # of this client, always async
            try:
                yield _answer(response, chunks)
            finally:
                await close_chunks(chunks)

    def _client(self) -> httpx.AsyncHTTPTransport:
        """Make a client for one request: the only place in the tools that does.

        A transport, because what a full client adds (redirects, cookies, netrc, proxies) is not wanted.
        """
        trusted = self.certificates or certificates(trust_env=False)
        return httpx.AsyncHTTPTransport(verify=trusted, trust_env=False, retries=0)

    async def _addresses(self, target: Target) -> tuple[IPAddress, ...]:
        """Return the addresses of *target*, all of them permitted."""
        if target.address is not None:
            found: tuple[IPAddress, ...] = (target.address,)
        else:
            try:
                found = read_addresses(await self.resolve(target.host))
            except (OSError, ValueError):  # no such name, or a resolver that talks nonsense
                found = ()
        if not found:
            raise InvalidInput(f"no address was found for {target.host}")
        if not all(map(self.permits, found)):
            raise InvalidInput(f"{target.host} has an address that is not on the public internet")
        return found[:MAX_ADDRESSES]


async def _first(
    client: httpx.AsyncHTTPTransport, target: Target, addresses: tuple[IPAddress, ...]
) -> httpx.Response:
    """Return the answer of the first address that accepts a connection."""
    reason = ""
    for address in addresses:
        try:
            return await client.handle_async_request(_request(target, address))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = cut_text(str(error), 200) or type(error).__name__
    raise InvalidInput(f"no connection to {target.host}, port {target.port}: {reason}")


def _request(target: Target, address: IPAddress) -> httpx.Request:
    """Make the request for *target* to *address*: the name is in Host and SNI, not in the URL."""
    headers = {
        "Host": target.authority,
        "User-Agent": f"hango/{version('hango')}",
        "Accept": "*/*",
        "Accept-Encoding": ACCEPT_ENCODING,
        "Connection": "close",
    }
    url = httpx.URL(
        scheme=target.scheme, host=str(address), port=target.port, raw_path=target.path.encode()
    )
    limits = {"connect": CONNECT_TIMEOUT, "read": None, "write": None, "pool": None}
    extensions = {"sni_hostname": target.host, "timeout": limits}
    return httpx.Request("GET", url, headers=headers, extensions=extensions)


def _answer(response: httpx.Response, chunks: AsyncIterator[bytes]) -> FetchResponse:
    headers = response.headers
    return FetchResponse(
        status=response.status_code,
        location=headers.get("location") if response.has_redirect_location else None,
        content_type=headers.get("content-type", ""),
        content_encoding=headers.get("content-encoding", ""),
        length=headers.get("content-length"),
        chunks=chunks,
    )
