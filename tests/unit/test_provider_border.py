"""The border to a provider: whatever it does costs its run, and only a cancel from outside gets out."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NoReturn, cast

import attrs
import pytest
import trio
import trio.testing

from hango.agent import Provider
from hango.agent.model_call import CHECKPOINT_EVERY
from hango.domain import (
    BlockStart,
    ErrorCode,
    OpaqueBlock,
    OutcomeStatus,
    ProviderEvent,
    ProviderRequest,
    RunError,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ToolUseBlock,
    Usage,
    UsageUpdate,
)
from hango.errors import ProviderError

from support.loop_bench import Bench, says
from support.tools import cancel_when_blocked

HI = TextDelta(0, "hi")
END = Stop(StopReason.END_TURN)
LATE = RunError(ErrorCode.DEADLINE_EXCEEDED, "took too long")


class UnreadableError(BaseException):
    """An error that raises when it is read."""

    def __str__(self) -> str:
        """Raise."""
        raise SystemExit("no")


class HostileError(ProviderError):
    """An error of a plug-in, with attributes that raise or are of wrong types."""

    retry_after = "soon"  # type: ignore[assignment]  # as an untyped plug-in may have it
    retryable = "yes"  # type: ignore[assignment]

    def __init__(self) -> None:
        """Make it."""
        Exception.__init__(self, "password=hunter2")

    @property
    def code(self) -> NoReturn:  # type: ignore[override]
        """Raise."""
        raise KeyboardInterrupt


@attrs.frozen
class Misbehaving:
    """A provider that yields *events*, and raises *error* at *place*."""

    error: BaseException | None = None
    place: str = "stream"
    events: tuple[object, ...] = ()
    name: str = "mine"

    @asynccontextmanager
    async def stream(self, _: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Misbehave."""
        self._raise("entry")
        yield self._events()
        self._raise("exit")

    async def _events(self) -> AsyncIterator[ProviderEvent]:
        for event in self.events:
            await trio.lowlevel.checkpoint()
            yield cast("ProviderEvent", event)
        self._raise("stream")

    def _raise(self, place: str) -> None:
        if self.error is not None and self.place == place:
            raise self.error


async def ended(provider: object, script: tuple[str, ...] = ()) -> tuple[OutcomeStatus, str]:
    """Run with *provider*; return status and error."""
    bench = Bench([says(words) for words in script])
    loop = bench.loop()
    loop.provider = cast("Provider", provider)
    outcome = await bench.run(loop)
    return outcome.status, f"{outcome.error.code}: {outcome.error.message}" if outcome.error else ""


ERRORS = [
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (BaseExceptionGroup("both", [SystemExit(1), ValueError("b")]), "SystemExit: 1; ValueError: b"),
    (UnreadableError(), "UnreadableError: (its message could not be read)"),
    (trio.BusyResourceError("sk-secret0123456789"), "BusyResourceError: [redacted]"),
    (HostileError(), "RuntimeError: its error cannot be read: KeyboardInterrupt"),
]


@pytest.mark.rule(27)
@pytest.mark.parametrize("place", ["entry", "stream", "exit"])
@pytest.mark.parametrize(("error", "told"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
async def test_whatever_a_provider_raises_fails_its_run(
    error: BaseException, told: str, place: str
) -> None:
    """R-F1: on entry, in its stream, and on exit; nothing of it reaches the session or the process."""
    ends: list[tuple[OutcomeStatus, str]] = []

    async def run() -> None:
        ends.append(await ended(Misbehaving(error, place)))

    async with trio.open_nursery() as nursery:  # not in the main task, where it would be Ctrl-C
        nursery.start_soon(run)
    assert ends == [
        (
            OutcomeStatus.ERROR,
            f"provider_error: unexpected_error: the provider raised {told}",
        )
    ]


@pytest.mark.rule(16)
@pytest.mark.parametrize("error", [SystemExit(3), ValueError("closed twice")])
async def test_a_whole_answer_is_not_lost_to_how_its_stream_is_closed(error: BaseException) -> None:
    """A14: it was billed."""
    provider = Misbehaving(error, "exit", (HI, END))
    assert await ended(provider) == (OutcomeStatus.DONE, "")


class Useless:
    """A provider whose stream is none, made by *make*."""

    def __init__(self, make: Callable[[], object], name: object = "mine") -> None:
        """Make it."""
        self._make, self._name = make, name

    @property
    def name(self) -> object:
        """Return the name, or raise it."""
        if isinstance(self._name, BaseException):
            raise self._name
        return self._name

    def stream(self, _: ProviderRequest) -> object:
        """Return what is no stream."""
        return self._make()


@pytest.mark.rule(27)
@pytest.mark.parametrize(
    "provider",
    [
        Useless(lambda: None),
        Useless(lambda: contextlib.nullcontext([HI, END])),
        Useless(lambda: [HI, END]),
        Useless(lambda: None, name=None),
        Useless(lambda: None, name=SystemExit(3)),
        *(
            Misbehaving(events=(event, END))
            for event in (
                TextDelta(0, None),  # type: ignore[arg-type]  # what untyped plug-ins do
                TextDelta(None, "hi"),  # type: ignore[arg-type]
                BlockStart(0, TextBlock(5)),  # type: ignore[arg-type]
                BlockStart(0, ToolUseBlock("a", None)),  # type: ignore[arg-type]
                BlockStart(0, OpaqueBlock("mine", [1])),  # type: ignore[arg-type]
                UsageUpdate(Usage(None)),  # type: ignore[arg-type]
                UsageUpdate(None),  # type: ignore[arg-type]
                Stop("end_turn"),  # type: ignore[arg-type]
            )
        ),
    ],
    ids=str,
)
async def test_a_provider_that_is_none_fails_its_run(provider: object) -> None:
    """R-F1: wrong types are found at the border, not where they are added or stored."""
    status, error = await ended(provider)
    assert status is OutcomeStatus.ERROR
    assert error.startswith(("provider_error: unexpected_error: ", "provider_stream_broken: "))


async def test_events_nobody_knows_are_ignored() -> None:
    """A16: a newer provider may send more than this hango knows."""
    assert await ended(Misbehaving(events=("news", None, HI, END))) == (OutcomeStatus.DONE, "")


# --- cancelled ------------------------------------------------------------------------------


async def _swallow() -> None:
    with contextlib.suppress(trio.Cancelled):
        await trio.sleep_forever()


async def _replace() -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise ProviderError("the connection broke", retryable=True) from None


async def _wrap() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_replace)


@attrs.frozen
class Waiting:
    """A provider that waits in its own way, and then answers."""

    wait: Callable[[], Awaitable[None]]
    name: str = "mine"

    @asynccontextmanager
    async def stream(self, _: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Wait, then answer."""
        await self.wait()
        yield self._answer()

    async def _answer(self) -> AsyncIterator[ProviderEvent]:
        await trio.lowlevel.checkpoint()
        yield HI
        yield END


@pytest.mark.rule(16)
@pytest.mark.parametrize("wait", [trio.sleep_forever, _swallow, _replace, _wrap])
async def test_a_cancel_from_outside_is_never_an_answer_or_an_error(
    wait: Callable[[], Awaitable[None]],
) -> None:
    """R-F1: it is raised anew, whatever the provider makes of it."""
    came_back: list[object] = []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_blocked, scope)
            came_back.append(await ended(Waiting(wait)))
    assert scope.cancelled_caught
    assert came_back == []


@pytest.mark.rule(27)
async def test_a_cancel_of_the_providers_own_is_its_error() -> None:
    """R-F1: one that leaks out of a scope of its own is not taken for the end of the run."""

    async def leak() -> None:
        caught: list[trio.Cancelled] = []
        with trio.move_on_after(0):
            try:
                await trio.sleep_forever()
            except trio.Cancelled as cancelled:
                caught.append(cancelled)
        raise caught[0]

    status, error = await ended(Waiting(leak))
    assert status is OutcomeStatus.ERROR
    assert "the provider raised Cancelled" in error


@attrs.define
class Endless:
    """A provider that never waits and never ends; after *patience* events it gives up, failing."""

    events: int = 0
    patience: int = 100 * CHECKPOINT_EVERY
    name: str = "mine"

    @asynccontextmanager
    async def stream(self, _: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Answer without an end."""
        yield self._tell()

    async def _tell(self) -> AsyncIterator[ProviderEvent]:
        while self.events < self.patience:
            self.events += 1
            yield HI
        raise AssertionError("nobody stopped it")


@pytest.mark.rule(19)
async def test_a_stream_that_never_waits_is_cut() -> None:
    """R-F2: others run meanwhile, and a cancel or deadline ends it within a few events."""
    bench, provider = Bench(), Endless()
    loop = bench.loop()
    loop.provider = provider
    seen: list[int] = []

    async def other(scope: trio.CancelScope) -> None:
        while provider.events < 3 * CHECKPOINT_EVERY:
            seen.append(provider.events)
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other, nursery.cancel_scope)
        await bench.execute(loop)
    assert len(seen) >= 2
    assert provider.events <= 5 * CHECKPOINT_EVERY
    assert [block for message in loop.failed(LATE).messages[1:] for block in message.content] == [
        TextBlock("hi" * provider.events)
    ]


# --- Ctrl-C ---------------------------------------------------------------------------------


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Heed Ctrl-C, also where these tests were started in the background, which ignores it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("patiently", [True, False])
def test_ctrl_c_is_not_a_failed_provider(*, patiently: bool) -> None:
    """A real interrupt ends a program that runs an agent in its main task."""

    async def press() -> None:
        signal.raise_signal(signal.SIGINT)
        if patiently:
            await trio.sleep_forever()

    async def main() -> None:
        await ended(Waiting(press))
        await trio.lowlevel.checkpoint()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
