"""A plug-in of tools that do what no tool should, and a model that asks for them.

The prompt names the tools, separated by blanks; all of them are called in one turn, and then the model
is done.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import NoReturn

import trio
from hostile.raising import RAISING
from hostile.returning import RETURNING, STRANGE

from hango import Effects, Plugins, tool
from hango.domain import PromptMessage, ProviderRequest, TextBlock
from hango.testing import Answer, FakeProvider, answer, call, text


async def swallow() -> str:
    """Take every cancellation for nothing, a few thousand times."""
    for _ in range(3000):
        with contextlib.suppress(BaseException):
            await trio.sleep_forever()
    return "survived"


async def replace() -> NoReturn:
    """Fail with something else instead of being cancelled."""
    try:
        await trio.sleep_forever()
    except BaseException:  # noqa: BLE001 - the misbehaviour under test
        raise ValueError("instead") from None


async def tidy_for_ever() -> None:
    """Fail in several tasks while being cancelled."""

    async def fail_at_the_end() -> NoReturn:
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit("on the way out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_at_the_end)
        nursery.start_soon(trio.sleep_forever)


def never_return() -> None:
    """Wait for what nobody will do."""
    threading.Event().wait()


def spin() -> None:
    """Compute for ever."""
    while True:
        pass


# --- not so bad -----------------------------------------------------------------------------


def fine() -> str:
    """Behave."""
    return "fine"


def _as_async(body: Callable[[], object]) -> Callable[[], Coroutine[object, object, object]]:
    async def async_body() -> object:
        return body()

    return async_body


LATE = (swallow, replace, tidy_for_ever, never_return)
GOOD = (*STRANGE, fine)


def bodies() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield all of them by name; those that need not be async come twice, in a thread and async."""
    for body in (*RAISING, *RETURNING, *GOOD):
        yield body.__name__, body
        yield f"async_{body.__name__}", _as_async(body)
    for late in (*LATE, spin):
        yield late.__name__, late


def named(*functions: Callable[[], object]) -> list[str]:
    """Return the names of tools made of *functions*."""
    wanted = {function.__name__ for function in functions}
    return [name for name, _ in bodies() if name.removeprefix("async_") in wanted]


def ask(request: ProviderRequest) -> Answer:
    """Ask for what the prompt names; then be done."""
    *_, last = request.messages
    names = _said(last).split()
    if not names:
        return answer(text("done"))
    return answer(*(call(name) for name in names))


def _said(message: PromptMessage) -> str:
    return " ".join(block.text for block in message.content if isinstance(block, TextBlock))


def register(plugins: Plugins) -> None:
    """Register the tools and the model."""
    for name, body in bodies():
        plugins.tool(tool(effects=Effects.READ_ONLY, name=name)(body))
    plugins.provider("naive", lambda: FakeProvider(ask, name="naive"))
