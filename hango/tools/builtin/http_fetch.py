"""http_fetch: read a page from a host that the operator allows.

Safe to re-execute: it sends only GET, without cookies or credentials.  Do not allow a server that acts
on GET.  The answer may differ the second time.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import httpx
import trio
from pydantic import Field

from hango.codec import cut_text
from hango.domain import Effects, Result
from hango.errors import InvalidInput
from hango.tools.fetch import AllowedHosts, Exchange, FetchResponse, Target
from hango.tools.fetch.body import is_text, read_body
from hango.tools.fetch.targets import MAX_URL
from hango.tools.tool import Tool, tool

TOTAL_TIMEOUT = 5.0  # seconds, trio clock: names, connections, redirects and body together
MAX_REDIRECTS = 5  # a page that needs more is lost; browsers give up at 20
DEFAULT_BYTES = 64 * 1024
MAX_BYTES = 1024 * 1024


def make_http_fetch(allowed: AllowedHosts, exchange: Exchange | None = None) -> Tool:
    """Make the tool.

    Args:
        allowed: the hosts it may fetch from; every redirect is held to them too.
        exchange: how requests are made; None for real names and public addresses only.
    """
    fetcher = _Fetcher(allowed, exchange or Exchange())

    @tool(effects=Effects.READ_ONLY)
    async def http_fetch(
        url: Annotated[str, Field(min_length=1, max_length=MAX_URL)],
        max_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES)] = DEFAULT_BYTES,
    ) -> Result:
        """Fetch a public web page or API answer with GET, and return its status, type and text.

        Only hosts that the operator of this server allows can be fetched.  Redirects are followed to
        allowed hosts.  Binary content is named, not shown.

        Args:
            url: An absolute http:// or https:// URL.
            max_bytes: How much of the content to return at most, in bytes.
        """
        with trio.move_on_after(TOTAL_TIMEOUT):
            try:
                return Result(await fetcher.fetch(url, max_bytes))
            except InvalidInput as error:
                return Result(f"not fetched: {error}", is_error=True)
            except httpx.HTTPError as error:
                return Result(f"not fetched: the connection failed ({_named(error)})", is_error=True)
        return Result(f"not fetched: it took longer than {TOTAL_TIMEOUT:g} s", is_error=True)

    return http_fetch


class _Fetcher:
    """Follows redirects and renders the answer."""

    def __init__(self, allowed: AllowedHosts, exchange: Exchange) -> None:
        self._allowed = allowed
        self._exchange = exchange

    async def fetch(self, url: str, limit: int) -> str:
        """Return the content of *url*, or of the page it redirects to."""
        target = Target.parse(url)
        for hop in range(MAX_REDIRECTS + 1):
            self._allowed.admit(target)
            async with self._exchange.get(target) as answer:
                if answer.location is None:
                    head = _head(answer, target if hop else None)
                    return f"{head}\n\n{await _content(answer, limit)}"
            target = target.join(answer.location)
        raise InvalidInput(f"it redirects more than {MAX_REDIRECTS} times")


def _head(answer: FetchResponse, target: Target | None) -> str:
    lines = [f"status: {answer.status} {_phrase(answer.status)}".rstrip()]
    lines += [f"type: {cut_text(answer.content_type, 200)}"] if answer.content_type else []
    lines += [f"redirected to: {target.url}"] if target else []
    return "\n".join(lines)


async def _content(answer: FetchResponse, limit: int) -> str:
    """Return the text of the body, or a note on what it is instead."""
    if is_text(answer.content_type):
        body = await read_body(answer.chunks, answer.content_encoding, limit)
        text = body.text(answer.content_type)
        if text is not None:
            return text + (f"\n[cut: only the first {limit} bytes are shown]" if body.truncated else "")
    size = f" of {cut_text(answer.length, 20)} bytes" if answer.length else ""
    return f"[binary content{size}, not shown]"


def _phrase(status: int) -> str:
    """Return the standard's words for *status*; the server's own are not repeated."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _named(error: httpx.HTTPError) -> str:
    return cut_text(f"{type(error).__name__}: {error}", 300)
