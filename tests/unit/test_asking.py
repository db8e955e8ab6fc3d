"""Asking the author's functions: sync or async, in whatever shape, and whatever they do instead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import NoReturn, TypeAlias

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.agent import callbacks
from hango.agent.callbacks import Raised, TenantThreads

Question: TypeAlias = Callable[[str], object]
PATIENCE = 60.0  # seconds of a wait that is not meant to be one

ask = partial(callbacks.call_user_function, threads=TenantThreads())


async def louder(text: str) -> str:
    """Say it louder, after a moment."""
    await trio.lowlevel.checkpoint()
    return text.upper()


def louder_at_once(text: str) -> str:
    """Say it louder."""
    return text.upper()


async def louder_with(mark: str, text: str) -> str:
    """Say it louder, with a mark that is always the same."""
    return (text + mark).upper()


@attrs.frozen
class Louder:
    """An object that answers when it is called."""

    mark: str = ""

    def __call__(self, text: str) -> str:
        """Say it louder."""
        return (text + self.mark).upper()

    async def method(self, text: str) -> str:
        """Say it louder, as a method."""
        return (text + self.mark).upper()


class AsyncLouder:
    """An object whose call is async."""

    async def __call__(self, text: str) -> str:
        """Say it louder."""
        return text.upper()


@attrs.frozen
class Later:
    """Something to await that is no coroutine."""

    text: str

    def __await__(self) -> Generator[object, None, str]:
        """Come to the text."""
        yield from louder("").__await__()
        return self.text.upper()


@pytest.mark.parametrize(
    "function",
    [
        louder,
        louder_at_once,
        lambda text: louder(text + ""),
        lambda text: text.upper(),
        Louder(),
        Louder().method,
        AsyncLouder(),
        AsyncLouder().__call__,
        partial(louder),
        partial(partial(louder_with), ""),
        partial(AsyncLouder()),
        partial(louder_at_once),
        Later,
        str.upper,
    ],
)
async def test_a_function_of_any_shape_is_asked(function: Question) -> None:
    """Async or sync, or sync with something to await for an answer."""
    assert await ask(function, "hi") == "HI"


async def test_only_sync_functions_run_in_a_thread() -> None:
    """An async one has the loop, which it may need; a sync one cannot block it."""

    async def here(_: str) -> int:
        return threading.get_ident()

    def there(_: str) -> int:
        return threading.get_ident()

    asked = [await ask(function, "") for function in (here, there, partial(here), partial(there))]
    assert [answer == threading.get_ident() for answer in asked] == [True, False, True, False]


async def test_a_sync_function_that_blocks_does_not_block_the_loop() -> None:
    """What it waits for is done by the loop meanwhile."""
    released = threading.Event()
    answers: list[object] = []

    async def asker() -> None:
        answers.append(await ask(lambda _: released.wait(PATIENCE), ""))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(asker)
        await wait_all_tasks_blocked()
        released.set()
    assert answers == [True]


def raising(error: BaseException) -> Question:
    """Return a sync function that raises *error*."""

    def function(_: str) -> NoReturn:
        raise error

    return function


def raising_later(error: BaseException) -> Question:
    """Return an async function that raises *error*."""

    async def function(_: str) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise error

    return function


@pytest.mark.parametrize("make", [raising, raising_later])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        ExceptionGroup("both", [ValueError("a"), KeyError("b")]),
        BaseExceptionGroup("both", [SystemExit(1), KeyboardInterrupt()]),
    ],
    ids=repr,
)
async def test_what_is_raised_comes_back_as_a_value(
    make: Callable[[BaseException], Question], error: BaseException
) -> None:
    """Whatever it is; nothing of it reaches the loop."""
    assert await ask(make(error), "") == Raised(error)


@pytest.mark.parametrize("make", [raising, raising_later])
async def test_the_end_of_an_iterator_is_an_error_like_others(
    make: Callable[[BaseException], Question],
) -> None:
    """Python gives `StopIteration` a meaning of its own in coroutines."""
    answer = await ask(make(StopIteration("no more")), "")
    assert isinstance(answer, Raised)
    assert isinstance(answer.error, RuntimeError)


class Foreign:
    """Waits for another kind of loop, as a library made for asyncio does."""

    def __await__(self) -> Generator[object, None, None]:
        """Tell trio something it does not understand."""
        yield "a future"


async def foreign(_: str) -> None:
    """Wait in a way that trio does not know."""
    await Foreign()


@pytest.mark.parametrize("function", [foreign, lambda _: Foreign()])
async def test_a_library_of_another_loop_is_an_error(function: Question) -> None:
    """It does not take the task with it that asked."""
    answer = await ask(function, "")
    assert isinstance(answer, Raised)
    assert "asyncio" in str(answer.error)


async def test_a_forgotten_await_is_no_answer_and_leaves_nothing_behind() -> None:
    """The coroutine comes back closed, so that Python has nothing to warn of."""

    async def forgetful(text: str) -> Coroutine[object, object, str]:
        return louder(text)

    answer = await ask(forgetful, "hi")
    assert type(answer).__name__ == "coroutine"
