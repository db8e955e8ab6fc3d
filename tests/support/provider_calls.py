"""Asking a scripted server, for tests of provider adapters.

Its one rule: what was told before an error is never lost.
"""

from __future__ import annotations

import pytest

from hango.domain import PromptMessage, ProviderEvent, ProviderRequest, TextBlock
from hango.errors import ProviderError
from hango.providers import OpenAIProvider

from support.llm_server import Reply, delta, finish, serve_llm, sse

KEY = "sk-test-0123456789"
REQUEST = ProviderRequest("m", "", (PromptMessage("user", (TextBlock("hi"),)),), (), 1, 100)
WHOLE = sse(delta(content="Hi"), finish("stop"))


async def ask(
    provider: OpenAIProvider,
    request: ProviderRequest = REQUEST,
    told: list[ProviderEvent] | None = None,
) -> list[ProviderEvent]:
    """Ask once and return all events; *told* has those before an error."""
    told = [] if told is None else told
    async with provider.stream(request) as events:
        async for event in events:
            told.append(event)
    return told


async def failure(
    reply: Reply, told: list[ProviderEvent] | None = None, *, silence: float = 60.0
) -> ProviderError:
    """Ask a server that gives *reply* and return the error it comes to."""
    async with serve_llm(reply) as server:
        with pytest.raises(ProviderError) as caught:
            await ask(OpenAIProvider(server.url, KEY, silence), told=told)
    return caught.value
