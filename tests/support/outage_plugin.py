"""A plug-in for processes whose database goes away: a model and tools that can be held where they are.

The prompt is the script, as `support.journal_plugin` reads it.  What holds lets go when somebody makes
a file: the journal's ``.during`` or ``.after``, as its name says.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import attrs
import trio

from hango import Effects, Plugins, ToolContext, tool
from hango.domain import Block, ProviderEvent, ProviderRequest
from hango.testing import Answer, FakeProvider

from support.journal_plugin import asked, journal, said, write

_GATES = ("during", "after")


async def _opened(gate: str) -> None:
    while not journal().with_suffix(f".{gate}").exists():  # noqa: ASYNC110 - made by another process
        await trio.sleep(0.01)


@tool(effects=Effects.KEYED)
async def pay(context: ToolContext) -> str:
    """Leave a mark, and return during; whoever is paid knows the key."""
    write(f"pay {context.idempotency_key}")
    await _opened("during")
    return "paid"


@tool(effects=Effects.UNSAFE)
async def send(context: ToolContext) -> str:
    """Leave a mark, and return after; must not run again."""
    write(f"send {context.idempotency_key}")
    await _opened("after")
    return "sent"


@attrs.frozen
class Patient:
    """A scripted model; where the name of a prompt is that of a gate, its first answer stops midway."""

    name: str
    _script: FakeProvider

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Answer *request*."""
        words, turn = asked(request)
        gate = next((gate for gate in _GATES if turn == 1 and words[0].startswith(gate)), None)
        async with (
            self._script.stream(request) as events,
            aclosing(_held(events, gate)) as held,
        ):
            yield held


async def _held(
    events: AsyncIterator[ProviderEvent], gate: str | None
) -> AsyncGenerator[ProviderEvent, None]:
    async for event in events:
        yield event
        if gate is not None:
            await _opened(gate)


def _answer(request: ProviderRequest) -> Answer | Block:
    words, turn = asked(request)
    write(f"provider {words[0]} {turn}")
    return said(words, turn)


def register(plugins: Plugins) -> None:
    """Register the model and its tools."""
    plugins.tool(pay)
    plugins.tool(send)
    plugins.provider("patient", lambda: Patient("patient", FakeProvider(_answer)))
