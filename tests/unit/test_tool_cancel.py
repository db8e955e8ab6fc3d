"""Time and cancellation: a tool cannot outlive its timeout, nor stop a run from being cancelled."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest
import trio
import trio.testing

from hango.domain import Effects, Result
from hango.tools import Tool, tool

from support.tools import (
    call,
    cancel_when_blocked,
    counting,
    view_of,
)


def endless(body: Callable[[], Awaitable[object]]) -> Tool:
    """Make a tool of an async *body* that does not end by itself."""

    async def t() -> object:
        return await body()

    return tool(effects=Effects.READ_ONLY)(t)


async def _sleep() -> None:
    await trio.sleep_forever()


async def _swallow() -> str:
    try:
        await trio.sleep_forever()
    except BaseException:  # noqa: BLE001  # the misbehaviour under test
        return "survived"


async def _swallow_often() -> str:
    for _ in range(3):
        with contextlib.suppress(trio.Cancelled):
            await trio.sleep_forever()
    return "survived"


async def _replace() -> NoReturn:
    try:
        await trio.sleep_forever()
    except BaseException:  # noqa: BLE001  # the misbehaviour under test
        raise ValueError("instead") from None


async def _nursery() -> None:
    async def fail_at_cancel() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("on the way out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(fail_at_cancel)


STUBBORN = pytest.mark.parametrize("body", [_sleep, _swallow, _swallow_often, _replace, _nursery])


@pytest.mark.rule(18)
@STUBBORN
async def test_a_timeout_is_a_timeout_whatever_the_tool_makes_of_it(
    body: Callable[[], Awaitable[object]], autojump_clock: trio.testing.MockClock
) -> None:
    """C07: a tool that swallows, replaces or wraps the cancellation is still reported as too slow."""
    with counting("t", "timeout"):
        result = await call(view_of(endless(body), timeout=30), "t")
    assert result == Result("t took longer than 30 s and was stopped", is_error=True)
    assert autojump_clock.current_time() == pytest.approx(30, abs=1)


@pytest.mark.rule(18)
@STUBBORN
async def test_a_cancel_is_never_turned_into_a_result(body: Callable[[], Awaitable[object]]) -> None:
    """C07: whoever cancels the run gets `Cancelled` and nothing else, whatever the tool does."""
    came_back: list[Result] = []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_blocked, scope)
            came_back.append(await call(view_of(endless(body)), "t"))
    assert scope.cancelled_caught
    assert not came_back


@pytest.mark.rule(18)
async def test_what_a_tool_cancels_itself_stays_inside() -> None:
    """C07: a cancellation of its own that leaks out is the tool's error, not the run's end."""

    async def leak() -> NoReturn:
        caught: list[trio.Cancelled] = []
        with trio.move_on_after(0):
            try:
                await trio.sleep_forever()
            except trio.Cancelled as cancelled:
                caught.append(cancelled)
        raise caught[0]

    result = await call(view_of(endless(leak)), "t")
    assert result.is_error
    assert "Cancelled" in result.for_llm


@pytest.mark.rule(18)
@pytest.mark.parametrize(("own", "general", "shorter"), [(5, 30, 5), (None, 30, 30), (60, 30, 30)])
async def test_the_shorter_limit_holds(
    own: float | None, general: float, shorter: float, autojump_clock: trio.testing.MockClock
) -> None:
    """A tool may shorten what it is given, not lengthen it."""
    slow = tool(effects=Effects.READ_ONLY, timeout=own)(_sleep)
    await call(view_of(slow, timeout=general), "_sleep")
    assert autojump_clock.current_time() == pytest.approx(shorter, abs=1)


@pytest.mark.rule(18)
def test_ctrl_c_is_not_a_failed_tool() -> None:
    """A real interrupt ends the program, also while a tool computes."""

    @tool(effects=Effects.READ_ONLY)
    async def busy() -> str:
        signal.raise_signal(signal.SIGINT)
        return "done"

    async def main() -> Result:
        result = await call(view_of(busy), "busy")
        await trio.lowlevel.checkpoint()
        return result

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
