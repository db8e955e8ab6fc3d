"""The plug-in of the workers: a model that follows the scripts, tools that write down what they do.

One rule: nothing is done that is not in the journal first.  ``CHAOS_JOURNAL`` names its file.
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
from hango.chaos.faults import BROKEN, TOOLS, Script
from hango.chaos.journal import Entry, Journal, What
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


class Passes(trio.abc.Instrument):
    """Knows when the event loop's present pass began: then it last looked at the clock."""

    def __init__(self) -> None:
        self.began = time.time()

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - as trio calls it
        """Take note of a new pass."""
        self.began = time.time()


@attrs.define
class Recorder:
    """Writes entries, with their times."""

    journal: Journal
    passes: Passes = attrs.field(factory=Passes)
    _marks: itertools.count[int] = attrs.field(factory=itertools.count)

    def wrote(self, what: What, subject: object, turn: int, call: int = 0, mark: str = "") -> None:
        """Write an entry."""
        times = (self.passes.began, time.time())
        self.journal.write(Entry(what, str(subject), turn, call, *times, mark))

    def began(self, context: ToolContext) -> None:
        """Write that a tool's body began."""
        self.wrote(What.BEGAN, context.run_id, context.turn, context.ordinal)

    def done(self, context: ToolContext) -> str:
        """Write a tool's result, and return it: a text that no other call has for one."""
        mark = f"{os.getpid()}-{next(self._marks)}-{time.time_ns()}"
        self.wrote(What.DONE, context.run_id, context.turn, context.ordinal, mark)
        return mark


# --- the tools ------------------------------------------------------------------------------


def make_tools(recorder: Recorder) -> Sequence[Tool]:
    """Make the tools of `plan.TOOLS`."""

    async def work(context: ToolContext, milliseconds: int) -> str:
        """Be at work for a while; safe to run again as far as its effects say."""
        recorder.began(context)
        await trio.sleep(milliseconds / 1000)
        return recorder.done(context)

    def crunch(context: ToolContext, milliseconds: int) -> str:
        """Be at work for a while, in a thread that nobody can stop; safe to run again."""
        recorder.began(context)
        time.sleep(milliseconds / 1000)
        return recorder.done(context)

    async def fail(context: ToolContext, milliseconds: int) -> str:
        """Fail after a while; safe to run again."""
        recorder.began(context)
        await trio.sleep(milliseconds / 1000)
        raise RuntimeError("as the script has it")

    special: Mapping[str, Function] = {"crunch": crunch, "fail": fail}
    return [
        tool(special.get(name, work), effects=effects, name=name) for name, effects in TOOLS.items()
    ]


# --- the model ------------------------------------------------------------------------------


@attrs.define
class Model:
    """A model that reads the script in the prompt, and takes its time."""

    recorder: Recorder
    name: str = PROVIDER
    _stumbled: set[tuple[str, int]] = attrs.field(factory=set)
    _fake: FakeProvider = attrs.field(init=False)

    @_fake.default
    def _make_fake(self) -> FakeProvider:
        return FakeProvider(_answer, name=self.name)

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Answer by the script; see `hango.agent.ports.Provider`."""
        script = script_of(request)
        await trio.lowlevel.checkpoint()  # as whoever opens a connection passes one
        if self._stumbles(script, request.turn):
            self.recorder.wrote(What.REFUSED, script.tag, request.turn)
            raise ProviderError("as the script has it", code="429", retryable=True, retry_after=0.05)
        self.recorder.wrote(What.ASKED, script.tag, request.turn)
        async with (
            self._fake.stream(request) as events,
            aclosing(_slowly(events, script.pause / 1000)) as slow,
        ):
            yield slow

    def _stumbles(self, script: Script, turn: int) -> bool:
        place = (script.tag, turn)
        if turn > len(script.turns) or not script.turns[turn - 1].stumbles or place in self._stumbled:
            return False
        self._stumbled.add(place)
        return True


async def _slowly(
    events: AsyncIterator[ProviderEvent], seconds: float
) -> AsyncGenerator[ProviderEvent, None]:
    """Spread *seconds* over the beginning of the answer, and over each block of it."""
    await trio.sleep(seconds / 2)
    async for event in events:
        await trio.sleep(seconds / 8)
        yield event


def script_of(request: ProviderRequest) -> Script:
    """Return the script the request is about: the last thing a user said."""
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


class Heard(Counter):
    """A counter whose increments are in the journal, too: a process that is killed exports none."""

    def __init__(self, counter: Counter, name: str, journal: Journal) -> None:
        self._heard, self._called, self._journal = counter, name, journal

    def add(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        """Raise the counter."""
        self._journal.write(Entry(What.COUNTED, self._called, at=time.time(), mark=str(amount)))
        self._heard.add(amount, attributes, context)


def register(plugins: Plugins) -> None:
    """Register model and tools, and listen to the counters of the sweep and the fence."""
    journal = Journal(Path(os.environ[JOURNAL]))
    recorder = Recorder(journal)
    for made in make_tools(recorder):
        plugins.tool(made)

    def model() -> Model:
        trio.lowlevel.add_instrument(recorder.passes)  # providers are made once the loop runs
        return Model(recorder)

    plugins.provider(PROVIDER, model)
    metrics.run_reclaimed = Heard(metrics.run_reclaimed, names.RUN_RECLAIMED, journal)
    metrics.fence_rejected = Heard(metrics.fence_rejected, names.FENCE_REJECTED, journal)
