"""Sync tools: they run in threads, never block the loop, and cannot pile up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import attrs
import pytest
import trio
import trio.testing

from hango.domain import Effects, Result, ToolUseBlock
from hango.testing import MemoryLedger
from hango.tools import Threads, Tool, ToolSet, tool

from support.tools import CONTEXT, call, cancel_when_blocked, counting, shout, view_of

TIMEOUT = 30  # seconds, on a clock that only moves when told


ran: list[str] = []


@tool(effects="unsafe")
def through() -> str:
    """Note that it ran."""
    ran.append("through")
    return "through"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    """Forget what earlier tests ran."""
    ran.clear()


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
async def test_stuck_threads_of_a_function_are_bounded(
    gate: Gate, mock_clock: trio.testing.MockClock
) -> None:
    """C08: beyond the bound a call waits its time, and says that it did not run; other tools go on."""
    threads = Threads(max_stuck=2)
    view = view_of(gated(gate), shout, through, threads=threads, timeout=TIMEOUT)
    for _ in range(2):
        await leave_behind(view, gate, mock_clock)
    results: list[Result] = []

    async def work() -> None:
        with counting("gated", "stuck_threads"):
            results.append(await call(view, "gated"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await trio.testing.wait_all_tasks_blocked()
        assert (await call(view, "shout", text="a")).for_llm == "A"
        assert (await call(view, "through")).for_llm == "through"
        assert not results
        mock_clock.jump(TIMEOUT + 1)
    told = "gated did not run: 2 earlier calls of it have not returned"
    assert results == [Result(told, is_error=True)]
    assert gate.runs == 2


@pytest.mark.rule(19)
async def test_a_call_that_waits_for_a_thread_uses_up_no_time(
    gate: Gate, mock_clock: trio.testing.MockClock
) -> None:
    """R-F8: its time begins when it starts, and only then it is recorded; none free is no end."""
    held = tool(effects="read_only", name="held", timeout=9 * TIMEOUT)(gate.wait)
    view = view_of(held, through, threads=Threads(max_threads=1), timeout=9 * TIMEOUT)
    ledger, results = MemoryLedger(), list[Result]()

    async def work(name: str) -> None:
        results.append(await view.call(ToolUseBlock("c1", name), CONTEXT, ledger))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, "held")
        await gate.next_one()
        nursery.start_soon(work, "through")
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(TIMEOUT - 1)
        assert (results, ledger.calls) == ([], {})
        gate.opened.set()
    assert results == [Result("through"), Result("through")]
    assert len(ledger.calls) == 1


@pytest.mark.rule(19)
async def test_a_call_that_is_cancelled_while_it_waits_never_starts(gate: Gate) -> None:
    """C08: nor is it recorded as started."""
    view = view_of(gated(gate), through, threads=Threads(max_threads=1))
    ledger = MemoryLedger()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, view, "gated")
        await gate.next_one()
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when_blocked, scope)
            await view.call(ToolUseBlock("c1", "through"), CONTEXT, ledger)
        assert scope.cancelled_caught
        gate.opened.set()
    assert ledger.calls == {}
    assert not ran


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
