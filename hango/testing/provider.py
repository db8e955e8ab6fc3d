"""A scripted model: what a test puts in the place of a real one.

One rule: it is as strict as the strictest API; a request that a real provider would refuse, and a call
the script has no answer for, fail loudly.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias

import attrs
import trio

from hango.call_ids import CallIds
from hango.domain import Block, BlockStart, ModelOptions, ProviderEvent, ProviderRequest, ToolUseBlock
from hango.testing.requests import check_request
from hango.testing.scripts import Answer, Step, as_answer

Script: TypeAlias = Sequence[Answer | Block] | Callable[[ProviderRequest], Answer | Block]
"""The answers in the order of the calls, or a function from a request to its answer."""


@attrs.define
class FakeProvider:
    """A provider that answers by its script.

    Attributes:
        name: what agents choose it by.
        strict: whether requests are checked by `check_request`.
        requests: every request it was sent, oldest first, refused ones included.
        complaints: what was wrong with how it was used; a run that hides an exception shows it here.
        closed: how many of the calls have been left again, for whatever reason.
    """

    _script: Script
    name: str = "fake"
    strict: bool = True
    requests: list[ProviderRequest] = attrs.field(factory=list, init=False)
    complaints: list[str] = attrs.field(factory=list, init=False)
    closed: int = attrs.field(default=0, init=False)
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    def check_options(self, model: str, options: ModelOptions) -> None:
        """Take all model options; they are in `requests`."""

    async def wait_for_calls(self, count: int) -> None:
        """Wait until it has been asked *count* times."""
        while self.calls < count:
            await self._called.wait()

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Ask for the next answer; see `hango.agent.ports.Provider`.

        Raises:
            AssertionError: the request is one a real API would refuse, or the script is used up.
        """
        self.requests.append(request)
        number = self.calls
        called, self._called = self._called, trio.Event()
        called.set()
        try:
            await trio.lowlevel.checkpoint()
            steps = self._answer(request, number).steps
            if steps and isinstance(steps[0], Exception):
                raise steps[0]
            async with aclosing(_play(steps, CallIds.after(request))) as events:
                yield events
        finally:
            self.closed += 1

    def _answer(self, request: ProviderRequest, number: int) -> Answer:
        try:
            if self.strict:
                check_request(request)
            return as_answer(self._next(request, number))
        except AssertionError as error:
            self.complaints.append(str(error))
            raise

    def _next(self, request: ProviderRequest, number: int) -> Answer | Block:
        if callable(self._script):
            return self._script(request)
        if number > len(self._script):
            last = request.messages[-1] if request.messages else None
            raise AssertionError(
                f"call {number} of a script of {len(self._script)} answers; asked about: {last}"
            )
        return self._script[number - 1]


async def _play(steps: Sequence[Step], ids: CallIds) -> AsyncGenerator[ProviderEvent, None]:
    for step in steps:
        await trio.lowlevel.checkpoint()
        match step:
            case Exception():
                raise step
            case trio.Event():
                await step.wait()
            case BlockStart(index, ToolUseBlock("", name)):
                yield BlockStart(index, ToolUseBlock(ids.give(), name))
            case _:
                yield step
