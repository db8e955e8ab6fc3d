"""The plug-in of the workers: a model that follows the scripts, and tools that journal what they do.

Rule: nothing is done that is not in the journal first.  ``CHAOS_JOURNAL`` names its file.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import attrs
import trio
from opentelemetry.context import Context
from opentelemetry.metrics import Counter
from opentelemetry.util.types import Attributes

from hango import Plugins, Tool, ToolContext, tool
from hango.chaos.journal import Entry, EntryKind, Journal
from hango.chaos.scripts import BROKEN, TOOLS, Script
from hango.domain import (
    PromptMessage,
    ProviderEvent,
    ProviderRequest,
    TextBlock,
)
from hango.errors import ProviderError
from hango.telemetry import metrics, names
from hango.testing.provider import FakeProvider
from hango.testing.scripts import Answer, answer, broken, call, text
from hango.tools.signature import Function

JOURNAL = "CHAOS_JOURNAL"
PROVIDER = "chaos"
QUICK = "quick"  # a model that answers at once


class LoopPasses(trio.abc.Instrument):
    """Knows when the current pass of the event loop began: its last look at the clock."""

    def __init__(self) -> None:
        self.began = time.time()

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - as trio calls it
        """Note that a pass begins."""
        self.began = time.time()


@attrs.define
class JournalWriter:
    """Writes entries with their times."""

    journal: Journal
    passes: LoopPasses = attrs.field(factory=LoopPasses)
    _marks: itertools.count[int] = attrs.field(factory=itertools.count)

    def write(self, kind: EntryKind, subject: object, turn: int, call: int = 0, mark: str = "") -> None:
        """Write an entry."""
        times = (self.passes.began, time.time())
        self.journal.write(Entry(kind, str(subject), turn, call, *times, mark))

    def began(self, context: ToolContext) -> None:
        """Write that a tool function began."""
        self.write(EntryKind.BEGAN, context.run_id, context.turn, context.ordinal)

    def done(self, context: ToolContext) -> str:
        """Write a tool's result, and return it: a text that no other call returns."""
        mark = f"{os.getpid()}-{next(self._marks)}-{time.time_ns()}"
        self.write(EntryKind.DONE, context.run_id, context.turn, context.ordinal, mark)
        return mark


# --- the tools ------------------------------------------------------------------------------


def make_tools(writer: JournalWriter) -> Sequence[Tool]:
    """Make the tools of `scripts.TOOLS`."""

    async def work(context: ToolContext, milliseconds: int) -> str:
        """Work for a while; safe to run again as far as its effects say."""
        writer.began(context)
        await trio.sleep(milliseconds / 1000)
        return writer.done(context)

    def crunch(context: ToolContext, milliseconds: int) -> str:
        """Work for a while, in a thread that cannot be stopped; safe to run again."""
        writer.began(context)
        time.sleep(milliseconds / 1000)
        return writer.done(context)

    async def fail(context: ToolContext, milliseconds: int) -> str:
        """Fail after a while; safe to run again."""
        writer.began(context)
        await trio.sleep(milliseconds / 1000)
        raise RuntimeError("as scripted")

    special: Mapping[str, Function] = {"crunch": crunch, "fail": fail}
    return [
        tool(special.get(name, work), effects=effects, name=name) for name, effects in TOOLS.items()
    ]


# --- the model ------------------------------------------------------------------------------


@attrs.define
class Model:
    """A model that answers by the script in the prompt."""

    writer: JournalWriter
    name: str = PROVIDER
    _instrumented: bool = False
    _refused: set[tuple[str, int]] = attrs.field(factory=set)
    _fake: FakeProvider = attrs.field(init=False)

    @_fake.default
    def _make_fake(self) -> FakeProvider:
        return FakeProvider(_answer, name=self.name)

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Answer by the script; see `hango.agent.ports.Provider`."""
        if not self._instrumented:
            self._instrumented = True
            trio.lowlevel.add_instrument(self.writer.passes)
        script = script_of(request)
        await trio.lowlevel.checkpoint()  # as opening a connection does
        if self._refuses(script, request.turn):
            self.writer.write(EntryKind.REFUSED, script.tag, request.turn)
            raise ProviderError("as scripted", code="429", retryable=True, retry_after=0.05)
        self.writer.write(EntryKind.ASKED, script.tag, request.turn)
        async with (
            self._fake.stream(request) as events,
            aclosing(_slowly(events, *script.pauses)) as slow,
        ):
            yield slow

    def _refuses(self, script: Script, turn: int) -> bool:
        place = (script.tag, turn)
        if (
            turn > len(script.turns)
            or not script.turns[turn - 1].refused_first
            or place in self._refused
        ):
            return False
        self._refused.add(place)
        return True


async def _slowly(
    events: AsyncIterator[ProviderEvent], first: float, each: float
) -> AsyncGenerator[ProviderEvent, None]:
    """Wait *first* seconds before the answer, and *each* before each event."""
    await trio.sleep(first)
    async for event in events:
        await trio.sleep(each)
        yield event


def script_of(request: ProviderRequest) -> Script:
    """Return the script of the run: the last text of the user."""
    said = [
        (place, block.text)
        for place, message in enumerate(request.messages)
        if message.role == "user"
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    place, prompt = said[-1]
    turns = sum(_answers(message) for message in request.messages[place:])
    if turns != request.turn - 1:
        raise AssertionError(f"turn {request.turn} was requested, but the messages have {turns}")
    return Script.parse(prompt)


def _answers(message: PromptMessage) -> bool:
    return message.role == "assistant"


def _answer(request: ProviderRequest) -> Answer:
    script = script_of(request)
    if request.turn <= len(script.turns):
        steps = script.turns[request.turn - 1].steps
        return answer(*(call(step.tool, {"milliseconds": step.milliseconds}) for step in steps))
    last = text(f"{script.tag} is done")
    return broken(last) if script.ending == BROKEN else answer(last)


# --- the counters ---------------------------------------------------------------------------


class JournaledCounter(Counter):
    """A counter whose increments are in the journal too: a process that is killed exports none."""

    def __init__(self, counter: Counter, name: str, journal: Journal) -> None:
        self._counter, self._called, self._journal = counter, name, journal

    def add(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        """Raise the counter."""
        self._journal.write(Entry(EntryKind.COUNTED, self._called, at=time.time(), mark=str(amount)))
        self._counter.add(amount, attributes, context)


def register(plugins: Plugins) -> None:
    """Register model and tools, and journal the counters of the sweep and the fence."""
    journal = Journal(Path(os.environ[JOURNAL]))
    writer = JournalWriter(journal)
    for made in make_tools(writer):
        plugins.tool(made)

    plugins.provider(PROVIDER, lambda: Model(writer))
    plugins.provider(QUICK, lambda: FakeProvider(lambda _: text("done"), name=QUICK, strict=False))
    metrics.run_reclaimed = JournaledCounter(metrics.run_reclaimed, names.RUN_RECLAIMED, journal)
    metrics.fence_rejected = JournaledCounter(metrics.fence_rejected, names.FENCE_REJECTED, journal)
