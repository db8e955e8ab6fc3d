"""The tool http_fetch as an agent has it, with names and permissions of the test."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from uuid import UUID

import attrs
import trio
import trio.testing

from hango.domain import Result, ToolContext, ToolUseBlock
from hango.testing import MemoryLedger
from hango.tools import AllowedHosts, Registry
from hango.tools.builtin import make_http_fetch
from hango.tools.fetch import Exchange, IPAddress, is_public

from support.web_server import Reply, WebServer, serve

CONTEXT = ToolContext(run_id=UUID(int=1), turn=1, ordinal=0, call_id="c")


@attrs.define
class Names:
    """A resolver that knows what it was told: host to its answers, one after the other."""

    answers: dict[str, list[Sequence[str]]]
    asked: list[str] = attrs.field(factory=list)

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the next answer for *host*; the last one stays."""
        self.asked.append(host)
        await trio.lowlevel.checkpoint()
        answers = self.answers.get(host)
        if not answers:
            raise OSError("no such name")
        return answers.pop(0) if len(answers) > 1 else answers[0]


def loopback_too(address: IPAddress) -> bool:
    """Permit the test's own servers beside the public internet."""
    return address.is_loopback or is_public(address)


@attrs.define
class Browser:
    """Calls the tool; nothing but what is given here differs from the real one."""

    allowed: Sequence[str]
    names: Names
    certificates: ssl.SSLContext | None = None
    public_only: bool = False

    async def get(self, url: str, **arguments: object) -> Result:
        """Fetch *url*."""
        permits = is_public if self.public_only else loopback_too
        exchange = Exchange(self.names, permits, self.certificates)
        registry = Registry()
        registry.register(make_http_fetch(AllowedHosts.parse(self.allowed), exchange))
        view = registry.view([], timeout=30, result_limit=4 * 1024 * 1024)
        call = ToolUseBlock("c", "http_fetch", {"url": url} | arguments)
        return await view.call(call, CONTEXT, MemoryLedger())


def browser(*servers: WebServer, host: str = "good.test") -> Browser:
    """Return a browser for which *host* is the given local servers."""
    allowed = [f"{host}:{server.port}" for server in servers]
    return Browser(allowed, Names({host: [["127.0.0.1"]]}))


async def fetched(nursery: trio.Nursery, reply: Reply, **arguments: object) -> Result:
    """Fetch one page that is answered with *reply*."""
    server = await serve(nursery, {"/": reply})
    return await browser(server).get(f"http://good.test:{server.port}/", **arguments)


def refused(result: Result, *reasons: str) -> bool:
    """Tell whether *result* is an error that gives all of *reasons*."""
    assert result.for_llm.startswith("not fetched: ")
    assert len(result.for_llm) < 500
    return result.is_error and all(reason in result.for_llm for reason in reasons)
