"""What every HTTP client of hango needs of httpx: its certificates, and a way to end a stream."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache

import httpx
import trio


@cache
def certificates(*, trust_env: bool) -> ssl.SSLContext:
    """Return the authorities to trust; read once, as that takes some ten milliseconds.

    Args:
        trust_env: also those that ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name.
    """
    return httpx.create_ssl_context(trust_env=trust_env)


async def close_chunks(chunks: AsyncIterator[bytes]) -> None:
    """End the iteration of *chunks*, wherever it is.

    httpx stacks generators and closes only the outermost; those below would be left to the garbage
    collector.  A read that is cancelled, instead, raises through all of them, and each cleans up.  A
    chunk that was received already comes without waiting, hence the loop.
    """
    with trio.CancelScope() as scope, suppress(httpx.HTTPError):
        scope.cancel()
        async for _ in chunks:
            pass
