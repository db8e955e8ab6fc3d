"""A model that stops in the middle of its answers.

Its one rule: the answer is a scripted one, whole and as it is; only its pieces come when they may.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import attrs

from hango.domain import ProviderEvent, ProviderRequest
from hango.testing import FakeProvider


@attrs.frozen
class PausingProvider:
    """A provider that, after each piece of an answer, waits for *stop*."""

    provider: FakeProvider
    stop: Callable[[ProviderRequest], Awaitable[None]]

    @property
    def name(self) -> str:
        """What agents choose it by."""
        return self.provider.name

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Ask for the next answer; see `hango.agent.ports.Provider`."""
        async with (
            self.provider.stream(request) as events,
            aclosing(self._play(events, request)) as own,
        ):
            yield own

    async def _play(
        self, events: AsyncIterator[ProviderEvent], request: ProviderRequest
    ) -> AsyncGenerator[ProviderEvent, None]:
        async for event in events:
            yield event
            await self.stop(request)
