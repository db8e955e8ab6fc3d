"""Asking the author's functions while the run is cancelled, threads are stuck, or Ctrl-C is pressed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NoReturn, TypeAlias

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango import RunResult
from hango.agent import Completion, callbacks
from hango.agent.callbacks import CallbackThreads, Raised, TenantThreads
from hango.domain import ToolUseBlock
from hango.threads import MAX_STUCK, MAX_STUCK_PER_TENANT, Threads

from support.loop_bench import Bench, asks, says
from support.tools import cancel_when_blocked

Question: TypeAlias = Callable[[str], object]
PATIENCE = 20.0  # seconds of a wait that is not meant to be one

ask = partial(callbacks.call_user_function, threads=TenantThreads())


async def _hang(_: str) -> None:
    await trio.sleep_forever()


async def _allow(_: str) -> str:
    return "allow"


class Allowing:
    """An object whose call is async."""

    async def __call__(self, _: str) -> str:
        """Permit."""
        return "allow"


async def _swallow(_: str) -> str:
    with contextlib.suppress(trio.Cancelled):
        await trio.sleep_forever()
    return "allow"


async def _replace(_: str) -> str:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise ValueError("instead") from None


async def _wrap(_: str) -> None:
    async def fail_at_cancel() -> NoReturn:
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit("on the way out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_at_cancel)


@pytest.mark.parametrize("function", [_hang, _swallow, _replace, _wrap])
async def test_a_cancel_is_never_an_answer(function: Question) -> None:
    """C07: whoever cancels the run gets `Cancelled`, whatever the function makes of it."""
    came_back: list[object] = []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_blocked, scope)
            came_back.append(await ask(function, ""))
    assert scope.cancelled_caught
    assert came_back == []


async def test_what_a_function_cancels_itself_stays_inside() -> None:
    """C07: a cancellation of its own that leaks out is its error, not the end of the run."""

    async def leak(_: str) -> NoReturn:
        caught: list[trio.Cancelled] = []
        with trio.move_on_after(0):
            try:
                await trio.sleep_forever()
            except trio.Cancelled as cancelled:
                caught.append(cancelled)
        raise caught[0]

    answer = await ask(leak, "")
    assert isinstance(answer, Raised)
    assert isinstance(answer.error, trio.Cancelled)


async def test_a_cancel_does_not_wait_for_a_thread() -> None:
    """The function goes on, its answer is dropped, and its thread is counted until it ends."""
    threads, released = Threads(), threading.Event()
    begun, ended = trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang(_: str) -> str:
        token.run_sync_soon(begun.set)
        released.wait(PATIENCE)
        token.run_sync_soon(ended.set)
        return "allow"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(callbacks.call_user_function, hang, "", TenantThreads(threads))
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert threads.stuck == 1
    released.set()
    await ended.wait()


@pytest.mark.rule(19)
async def test_no_thread_free_is_a_wait_and_never_an_answer() -> None:
    """C08, R-F8: of a function whose calls hang no other starts; others, and async ones, do."""
    threads, released = Threads(max_stuck=1), threading.Event()
    of_tenant, answers = TenantThreads(threads, "acme"), list[object]()

    def hang(_: str) -> str:
        begun.set()
        released.wait(PATIENCE)
        return "allow"

    async def abandon() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(callbacks.call_user_function, hang, "", of_tenant)
            await trio.to_thread.run_sync(begun.wait)
            nursery.cancel_scope.cancel()

    async def again() -> None:
        answers.append(await callbacks.call_user_function(hang, "", of_tenant))

    begun = threading.Event()
    await abandon()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again)
        await wait_all_tasks_blocked()
        for function in (_allow, Allowing(), lambda _: "allow"):
            assert await callbacks.call_user_function(function, "hi", of_tenant) == "allow"
        elsewhere = TenantThreads(threads, "umbra")
        assert await callbacks.call_user_function(lambda _: "allow", "hi", elsewhere) == "allow"
        assert answers == []
        released.set()
    assert answers == ["allow"]


@pytest.mark.rule(23)
async def test_verifiers_that_hang_keep_no_guardrail_from_answering() -> None:
    """C08: one gate whose verifiers never end must not have every call of every agent denied."""
    released, begun = threading.Event(), threading.Semaphore(0)
    threads = CallbackThreads()

    def hang(_: RunResult) -> tuple[bool, str]:
        begun.release()
        released.wait(PATIENCE)
        return True, ""

    def hang_as_well(result: RunResult) -> tuple[bool, str]:
        return hang(result)

    async with trio.open_nursery() as nursery:
        for verify in [hang, hang_as_well] * MAX_STUCK:  # as many as a tenant may have
            bench = Bench([says("done")], completion=Completion(verify, 2), threads=threads)
            nursery.start_soon(bench.run)
            await trio.to_thread.run_sync(begun.acquire)
        nursery.cancel_scope.cancel()
    assert threads.verifiers.stuck == MAX_STUCK_PER_TENANT
    try:
        script = [asks(ToolUseBlock("c1", "get_time")), says("done")]
        bench = Bench(script, guardrails=[lambda _: None], threads=threads)
        with trio.fail_after(PATIENCE / 4):
            await bench.run()
        assert len(bench.tools.calls) == 1
    finally:
        released.set()
        while threads.verifiers.stuck:  # they have only their own bookkeeping left to do
            await trio.lowlevel.checkpoint()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Heed Ctrl-C, also where these tests were started in the background, which ignores it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_not_a_failed_function() -> None:
    """A real interrupt ends the program, also while a function computes."""

    async def busy(_: str) -> str:
        signal.raise_signal(signal.SIGINT)
        return "allow"

    async def main() -> object:
        answer = await ask(busy, "")
        await trio.lowlevel.checkpoint()
        return answer

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
