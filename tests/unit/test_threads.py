"""Threads for sync functions: a fair line, bounds for what hangs, a thread of its own for each call."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import attrs
import pytest
import sniffio
import trio
from trio.testing import wait_all_tasks_blocked

from hango import threads as module
from hango.threads import Owner, Threads, _Job

PATIENCE = 20.0  # seconds of a wait that is not meant to be one
ACME, UMBRA, ZORG = (Owner(name, "look") for name in ("acme", "umbra", "zorg"))

Held: TypeAlias = tuple[Owner, threading.Event]


@attrs.define
class Line:
    """Calls that run until they are let go, and the order in which they started."""

    threads: Threads
    nursery: trio.Nursery
    started: list[Owner] = attrs.field(factory=list)
    _held: list[Held] = attrs.field(factory=list)

    async def call(self, owner: Owner, times: int = 1) -> None:
        """Call a function for *owner*, and let all go as far as they can."""
        for _ in range(times):
            self.nursery.start_soon(self.threads.run, partial(self._hold, owner), owner)
            await self.settle()

    def _hold(self, owner: Owner) -> None:
        event = threading.Event()
        self.started.append(owner)
        self._held.append((owner, event))
        event.wait(PATIENCE)

    async def let_go(self) -> None:
        """Let the function that runs longest return."""
        _, event = self._held.pop(0)
        event.set()
        await self.settle()

    async def settle(self) -> None:
        """Wait until every function that has a thread is in it."""
        while True:
            await wait_all_tasks_blocked()
            if len(self._held) == self.threads._running.total():
                return

    def end(self) -> None:
        """Let all return, those that have not started, too."""
        self.nursery.cancel_scope.cancel()
        for _, event in self._held:
            event.set()


@pytest.mark.rule(19)
async def test_tenants_take_turns() -> None:
    """R-F8: the tenant with the fewest is next, whoever came first; among equals who came first."""
    async with trio.open_nursery() as nursery:
        line = Line(Threads(max_threads=2, max_per_tenant=2), nursery)
        await line.call(ACME, 6)
        await line.call(UMBRA, 2)
        await line.call(ZORG)
        assert line.started == [ACME, ACME]
        for _ in range(5):
            await line.let_go()
        assert line.started[2:] == [UMBRA, ZORG, ACME, UMBRA, ACME]
        line.end()


@pytest.mark.rule(19)
async def test_a_tenant_leaves_some_to_others() -> None:
    """R-F8: a tenant that comes later finds a thread at once."""
    async with trio.open_nursery() as nursery:
        line = Line(Threads(max_threads=4, max_per_tenant=3), nursery)
        await line.call(ACME, 9)
        await line.call(UMBRA)
        assert line.started == [ACME, ACME, ACME, UMBRA]
        line.end()


def abandoned(threads: Threads, owner: Owner, *, count: int) -> Callable[[], None]:
    """Leave *count* calls of *owner* behind; returns what lets them end."""
    released, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        released.wait(PATIENCE)

    async def leave() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(threads.run, hang, owner)
                await trio.to_thread.run_sync(begun.acquire)
            nursery.cancel_scope.cancel()

    before = threads.stuck
    trio.run(leave)
    assert threads.stuck == before + count
    return released.set


Leave: TypeAlias = Callable[[Threads, Owner, int], None]


@pytest.fixture
def leave() -> Iterator[Leave]:
    """Return a function that leaves calls behind, which end with the test."""
    endings: list[Callable[[], None]] = []

    def make(threads: Threads, owner: Owner, count: int) -> None:
        endings.append(abandoned(threads, owner, count=count))

    yield make
    for end in endings:
        end()


@pytest.mark.rule(19)
@pytest.mark.parametrize(
    ("counts", "waits"),
    [
        ([(ACME, 2)], {ACME}),
        ([(ACME, 1)], set()),
        ([(Owner("acme", "hear"), 2)], set()),
        ([(Owner("acme", "hear"), 2), (Owner("acme", "smell"), 2)], {ACME}),
        ([(UMBRA, 2)], {UMBRA}),
        ([(UMBRA, 2), (ZORG, 2), (ACME, 1)], {ACME, UMBRA, ZORG}),
    ],
)
def test_what_hangs_delays_its_own_function_then_its_tenant_and_nobody_else(
    leave: Leave,
    monkeypatch: pytest.MonkeyPatch,
    counts: list[tuple[Owner, int]],
    waits: set[Owner],
) -> None:
    """R-F8: beyond the bound of all, only those wait that hang themselves."""
    monkeypatch.setattr(module, "MAX_STUCK_PER_TENANT", 4)
    monkeypatch.setattr(module, "MAX_STUCK_IN_ALL", 5)
    threads = Threads(max_threads=3, max_stuck=2)
    for stuck, count in counts:
        leave(threads, stuck, count)
    done: set[Owner] = set()

    async def call(owner: Owner) -> None:
        await threads.run(lambda: done.add(owner), owner)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for owner in (ACME, UMBRA, ZORG):
                nursery.start_soon(call, owner)
            with trio.fail_after(PATIENCE):
                while done != {ACME, UMBRA, ZORG} - waits:
                    await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert done == {ACME, UMBRA, ZORG} - waits


@pytest.mark.rule(19)
def test_who_waits_goes_on_when_what_hangs_ends() -> None:
    """Also a wait of another run of trio than that in which it was left."""
    threads = Threads(max_stuck=1)
    end = abandoned(threads, ACME, count=1)

    async def main() -> object:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(when_blocked, end)
            with trio.fail_after(PATIENCE):
                return await threads.run(lambda: "through", ACME)

    async def when_blocked(act: Callable[[], None]) -> None:
        await wait_all_tasks_blocked()
        act()

    assert trio.run(main) == "through"
    assert (threads.stuck, threads._running.total(), threads._waiting) == (0, 0, {})


def test_a_thread_that_outlives_its_trio_run_takes_no_place_in_the_next(leave: Leave) -> None:
    """C08: it may end when nobody is left to give it back to; a program may run trio many times."""
    threads = Threads(max_threads=1, max_stuck=9)
    leave(threads, ACME, 1)

    async def use() -> object:
        with trio.fail_after(PATIENCE):
            return await threads.run(lambda: "through", ACME)

    assert trio.run(use) == "through"


def test_a_thread_that_begins_after_its_call_is_over_does_nothing() -> None:
    """C08: between the start of a thread and its first step a call may end."""
    ran: list[int] = []

    async def main() -> None:
        threads = Threads()
        task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
        job = _Job(lambda: ran.append(1), task, token)
        threads._leave(job, ACME)
        threads._work(job, ACME)
        assert not ran
        assert threads.stuck == 0

    trio.run(main)


# --- what a function finds in its thread ----------------------------------------------------


async def test_nothing_of_a_call_is_there_for_the_next() -> None:
    """N09: the thread-locals of one tenant's tool are not another's."""
    local, found = threading.local(), list[object]()

    def look(who: str) -> None:
        found.append(getattr(local, "who", None))
        local.who = who

    threads = Threads(max_threads=1)
    for owner in (ACME, UMBRA, ACME):
        await threads.run(partial(look, str(owner.tenant)), owner)
    assert found == [None, None, None]


async def test_a_function_has_the_context_of_its_call() -> None:
    """Log fields and traces go along; what it sets itself stays with it."""
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("ours")

    def change() -> str:
        found = variable.get()
        variable.set("its own")
        return found

    assert [await Threads().run(change) for _ in range(2)] == ["ours", "ours"]
    assert variable.get() == "ours"


async def test_a_function_may_run_asyncio() -> None:
    """It is in no loop; a library that asks where it is finds nothing."""

    def own_loop() -> str:
        with pytest.raises(sniffio.AsyncLibraryNotFoundError):
            sniffio.current_async_library()
        return asyncio.run(asyncio.sleep(0, "slept"))

    assert await Threads().run(own_loop) == "slept"


async def test_a_function_may_call_back_into_trio() -> None:
    """As in threads that trio itself makes."""

    async def back() -> str:
        await trio.lowlevel.checkpoint()
        return "back"

    assert await Threads().run(partial(trio.from_thread.run, back)) == "back"
    assert await Threads().run(partial(trio.from_thread.run_sync, str, 5)) == "5"


async def test_a_function_can_ask_whether_it_was_cancelled() -> None:
    """`trio.from_thread.check_cancelled` is how a polite one ends."""
    begun, ended = trio.Event(), threading.Event()

    def poll() -> None:
        trio.from_thread.run_sync(begun.set)
        try:
            while True:
                trio.from_thread.check_cancelled()
        except trio.Cancelled:
            ended.set()

    threads = Threads()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.run, poll)
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(ended.wait, PATIENCE)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
async def test_what_a_function_raises_is_raised(error: BaseException) -> None:
    """And nothing is kept of it."""

    def fail() -> None:
        raise error

    threads = Threads()
    with pytest.raises(type(error)) as raised:
        await threads.run(fail)
    assert raised.value is error
    assert (threads.stuck, threads._running.total()) == (0, 0)


async def test_a_thread_that_cannot_be_started_is_an_error_of_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine may have no more; the place is free again."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads(max_threads=1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await threads.run(list)
    assert await threads.run(list) == []
