"""Sync tools: they run in threads, never block the loop, and cannot pile up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import attrs
import pytest
import trio
import trio.testing

from hango.domain import Effects, Result
from hango.threads import _Job
from hango.tools import Threads, Tool, ToolSet, tool

from support.tools import (
    call,
    counting,
    shout,
    view_of,
)

TIMEOUT = 30  # seconds, on a clock that only moves when told
PATIENCE = 10.0  # real seconds, of a wait that is not meant to be one


@attrs.define
class Gate:
    """Holds sync tools until it is opened.

    Attributes:
        entered, ended: how many have come to it and gone through, one release each.
        runs: how many have come, in all.
    """

    opened: threading.Event = attrs.field(factory=threading.Event)
    entered: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    ended: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    runs: int = 0

    def wait(self) -> str:
        """Wait, uninterruptible as sync code is."""
        self.runs += 1
        self.entered.release()
        self.opened.wait(60)
        self.ended.release()
        return "through"

    async def next_one(self) -> None:
        """Return when one more tool waits here."""
        await trio.to_thread.run_sync(self.entered.acquire)

    async def let_through(self) -> None:
        """Open it and return when all that came are through."""
        self.opened.set()
        for _ in range(self.runs):
            await trio.to_thread.run_sync(self.ended.acquire)
        self.runs = 0


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Open it at the end, so that no thread outlives its test."""
    gate = Gate()
    yield gate
    gate.opened.set()
    for _ in range(gate.runs):
        assert gate.ended.acquire(timeout=60)


def gated(gate: Gate) -> Tool:
    """Make a tool that waits at *gate*."""
    return tool(effects=Effects.READ_ONLY, name="gated")(gate.wait)


async def leave_behind(view: ToolSet, gate: Gate, clock: trio.testing.MockClock) -> Result:
    """Call a gated tool, let it come to the gate, and its time run out."""
    results: list[Result] = []

    async def work() -> None:
        results.append(await call(view, "gated"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await gate.next_one()
        clock.jump(TIMEOUT + 1)
    return results[0]


@pytest.mark.rule(19)
async def test_a_sync_tool_does_not_block_the_loop(gate: Gate) -> None:
    """C08: other tasks run while it works; here one of them lets it go."""
    results: list[Result] = []

    async def work() -> None:
        results.append(await call(view_of(gated(gate)), "gated"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await gate.next_one()
        assert not results
        gate.opened.set()
    assert results == [Result("through")]


@pytest.mark.rule(19)
async def test_a_sync_tool_that_hangs_is_left_behind_and_counted(
    gate: Gate, mock_clock: trio.testing.MockClock
) -> None:
    """C08: the timeout ends the call at once; the thread counts until it ends."""
    threads = Threads()
    view = view_of(gated(gate), threads=threads, timeout=TIMEOUT)
    with counting("gated", "timeout"):
        assert (await leave_behind(view, gate, mock_clock)).is_error
    assert threads.stuck == 1
    await gate.let_through()
    while threads.stuck:  # the thread has only its own bookkeeping left to do
        await trio.lowlevel.checkpoint()


@pytest.mark.rule(19)
async def test_stuck_threads_are_bounded(gate: Gate, mock_clock: trio.testing.MockClock) -> None:
    """C08: beyond the bound a sync call is refused; async tools go on."""
    threads = Threads(max_threads=3, max_stuck=2)
    view = view_of(gated(gate), shout, threads=threads, timeout=TIMEOUT)
    for _ in range(2):
        assert not threads.exhausted
        await leave_behind(view, gate, mock_clock)
    assert threads.exhausted
    with counting("gated", "stuck_threads"):
        result = await call(view, "gated")
    assert result.is_error
    assert "not returned yet" in result.for_llm
    assert gate.runs == 2
    assert (await call(view, "shout", text="a")).for_llm == "A"


@pytest.mark.rule(19)
async def test_a_sync_tool_that_waits_for_a_thread_can_time_out_and_never_starts(
    gate: Gate, mock_clock: trio.testing.MockClock
) -> None:
    """C08: its call is over, so its body must not run later."""
    view = view_of(gated(gate), threads=Threads(max_threads=1, max_stuck=9), timeout=TIMEOUT)
    await leave_behind(view, gate, mock_clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, view, "gated")
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(TIMEOUT + 1)
    assert gate.runs == 1
    await gate.let_through()
    assert gate.runs == 0


def test_a_thread_that_begins_after_its_call_is_over_does_nothing() -> None:
    """C08: between the start of a thread and its first step a call may end."""
    ran: list[int] = []
    threads = Threads()
    job = _Job(lambda: ran.append(1))
    threads._leave(job)
    threads._work(job)
    assert not ran
    assert threads.stuck == 0


def test_a_thread_that_outlives_its_trio_run_takes_no_place_in_the_next(gate: Gate) -> None:
    """C08: it may end when nobody is left to give it back to; a program may run trio many times."""
    threads = Threads(max_threads=1, max_stuck=9)

    async def leave() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, gate.wait)
            await gate.next_one()
            nursery.cancel_scope.cancel()

    async def use() -> object:
        with trio.fail_after(PATIENCE):
            return await threads.run(lambda: "through")

    trio.run(leave)
    assert threads.stuck == 1
    assert trio.run(use) == "through"


@pytest.mark.rule(19)
async def test_a_sync_tool_is_cancelled_with_its_run(gate: Gate) -> None:
    """C07, C08: the run does not wait for a thread."""
    threads = Threads()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, view_of(gated(gate), threads=threads), "gated")
            await gate.next_one()
            scope.cancel()
    assert scope.cancelled_caught
    assert threads.stuck == 1


@pytest.mark.rule(19)
async def test_a_sync_tool_that_computes_leaves_the_loop_alone() -> None:
    """C08: a loop in Python is interrupted by the interpreter, so checkpoints go on meanwhile."""
    done = threading.Event()

    def compute() -> str:
        until = time.monotonic() + 60
        while not done.is_set() and time.monotonic() < until:
            pass
        return "done" if done.is_set() else "starved"

    results: list[Result] = []
    view = view_of(tool(effects=Effects.READ_ONLY)(compute), timeout=120)

    async def work() -> None:
        results.append(await call(view, "compute"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        done.set()
    assert results == [Result("done")]
