"""A process that floods a web server: ``python -m hango.chaos.web_flood URL SECONDS PATH…``.

It asks for each path over many connections, as fast as it is answered, with the API key that is in
``FLOOD_KEY``; answers and errors are of no interest.  A process of its own, so that it holds up nobody
but the server.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from itertools import cycle, islice

import httpx
import trio

KEY = "FLOOD_KEY"
_CONNECTIONS = 100


async def flood(url: str, seconds: float, *paths: str) -> None:
    """Send requests for *seconds*."""
    headers = {"Authorization": f"Bearer {os.environ[KEY]}"}
    limits = httpx.Limits(max_connections=_CONNECTIONS)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, limits=limits, timeout=seconds, trust_env=False
    ) as client:

        async def request(path: str) -> None:
            while True:
                with suppress(httpx.HTTPError):
                    await client.get(path)
                await trio.sleep(0.01)  # also where nothing listens any more

        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for path in islice(cycle(paths), _CONNECTIONS):
                    nursery.start_soon(request, path)


if __name__ == "__main__":
    trio.run(flood, sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
