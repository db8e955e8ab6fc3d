"""A plug-in whose model and tools do what none should: for runs that may harm only themselves.

A run's prompt is ``misbehave`` and a `Misbehaviour`.  What holds a process until its watchdog ends it
is in a function whose name begins with ``hold_``: the stacks in its log then say why it ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from enum import StrEnum

import attrs
import trio

from hango import Effects, Plugins, tool
from hango.domain import (
    BlockStart,
    BlockStop,
    ProviderEvent,
    ProviderRequest,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ToolUseBlock,
)
from hango.tools.signature import Function

PROVIDER = "misbehaving"
_DEAF_FOR = 6.0  # seconds that something ignores its cancellation; two leases of a scenario
_HANGING = 40  # calls at once: as many as a process has threads for tools
_BACKTRACKS = re.compile(r"(a+)+$")


class Misbehaviour(StrEnum):
    """What the model or a tool of a run does."""

    EXIT = "exit"  # the model raises SystemExit
    INTERRUPT = "interrupt"  # the model raises KeyboardInterrupt in the middle of an answer
    BASE_EXCEPTION = "base_exception"  # the model raises a group of what is no Exception
    ENDLESS_ANSWER = "endless_answer"  # the model sends text without end, and never waits
    DEAF_MODEL = "deaf_model"  # the model ignores its cancellation
    EXIT_TOOL = "exit_tool"  # a tool raises SystemExit
    DEAF_TOOL = "deaf_tool"  # a tool ignores its cancellation
    HANG_THREADS = "hang_threads"  # forty calls of a sync tool hang in their threads
    HOLD_LOOP = "hold_loop"  # an async tool blocks the event loop
    HOLD_INTERPRETER = "hold_interpreter"  # a sync tool keeps the interpreter's lock


class _NoException(BaseException):
    """What only code with a border for everything survives."""


def prompt_of(misbehaviour: Misbehaviour) -> str:
    """Return the prompt of a run that does that."""
    return f"misbehave {misbehaviour}"


# --- the tools ------------------------------------------------------------------------------


async def exit_tool() -> str:
    """Raise SystemExit; safe to run again."""
    raise SystemExit("the tool exits")


async def deaf_tool() -> str:
    """Ignore cancellation for a while; safe to run again."""
    await _ignore_cancellation()
    return "done at last"


def hang_threads() -> str:
    """Hang in a thread for a while; safe to run again."""
    time.sleep(_DEAF_FOR)
    return "done at last"


async def hold_loop() -> str:
    """Block the event loop for ever; safe to run again."""
    while True:
        time.sleep(60)  # noqa: ASYNC251 - the fault


def hold_interpreter() -> str:
    """Match for ever in C, without releasing the interpreter's lock; safe to run again."""
    return str(_BACKTRACKS.match("a" * 60 + "b"))


async def _ignore_cancellation() -> None:
    end = trio.current_time() + _DEAF_FOR
    while trio.current_time() < end:
        with suppress(BaseException):
            await trio.sleep(0.05)


_TOOLS: Mapping[Misbehaviour, Function] = {
    Misbehaviour.EXIT_TOOL: exit_tool,
    Misbehaviour.DEAF_TOOL: deaf_tool,
    Misbehaviour.HANG_THREADS: hang_threads,
    Misbehaviour.HOLD_LOOP: hold_loop,
    Misbehaviour.HOLD_INTERPRETER: hold_interpreter,
}


# --- the model ------------------------------------------------------------------------------


Events = AsyncGenerator[ProviderEvent, None]


async def _raise(*errors: BaseException) -> Events:
    for error in errors:
        raise error
    yield BlockStop(0)


async def _interrupt() -> Events:
    yield BlockStart(0, TextBlock(""))
    yield TextDelta(0, "half an")
    raise KeyboardInterrupt


async def _endless_answer() -> Events:
    yield BlockStart(0, TextBlock(""))
    while True:
        yield TextDelta(0, "x")


async def _deaf_model() -> Events:
    await _ignore_cancellation()
    async for event in _say("done at last"):
        yield event


async def _say(text: str) -> Events:
    yield BlockStart(0, TextBlock(""))
    yield TextDelta(0, text)
    yield BlockStop(0)
    yield Stop(StopReason.END_TURN)


async def _call(name: str, times: int) -> Events:
    for index in range(times):
        yield BlockStart(index, ToolUseBlock(f"call_{index}", name))
        yield BlockStop(index)
    yield Stop(StopReason.TOOL_USE)


_ANSWERS: Mapping[Misbehaviour, Callable[[], Events]] = {
    Misbehaviour.EXIT: lambda: _raise(SystemExit("the model exits")),
    Misbehaviour.INTERRUPT: _interrupt,
    Misbehaviour.BASE_EXCEPTION: lambda: _raise(
        BaseExceptionGroup("of the model", [_NoException(), ValueError("and an Exception")])
    ),
    Misbehaviour.ENDLESS_ANSWER: _endless_answer,
    Misbehaviour.DEAF_MODEL: _deaf_model,
}


@attrs.frozen
class MisbehavingModel:
    """A model that does what the prompt says."""

    name: str = PROVIDER

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Answer; see `hango.agent.ports.Provider`."""
        async with aclosing(_events(request)) as events:
            yield events


def _events(request: ProviderRequest) -> Events:
    if request.turn > 1:
        return _say("done")
    blocks = request.messages[-1].content
    text = next(block.text for block in blocks if isinstance(block, TextBlock))
    misbehaviour = Misbehaviour(text.removeprefix("misbehave "))
    answer = _ANSWERS.get(misbehaviour)
    times = _HANGING if misbehaviour is Misbehaviour.HANG_THREADS else 1
    return answer() if answer else _call(misbehaviour, times)


def register(plugins: Plugins) -> None:
    """Register the model and its tools."""
    for name, function in _TOOLS.items():
        plugins.tool(tool(function, effects=Effects.READ_ONLY, name=name.value))
    plugins.provider(PROVIDER, MisbehavingModel)
