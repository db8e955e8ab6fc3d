"""A clock for tests of leases: it moves only when nothing goes on, here or in the database.

One rule: whatever is under way at one moment is seen to its end before the next moment comes.  trio's
own autojump cannot do so: to it, a task that waits for Postgres looks like one that waits for time, and
every timeout of the connections follows the clock.

Used by tests: the plugin's fixture ``lease_clock`` is one, and with ``trio.run(..., clock=...)`` it
needs no pytest.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.db.pool import Pool, open_pool
from hango.threads import WAITING_FOR_FUNCTION

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""What the database is told when the clock stands at 0."""

# Real seconds without any activity.  What this process sends to itself (a client and a server in one
# test) is there when it has been sent, or very soon after.
_CUSHION = 0.001
_PATIENCE = 30.0  # real seconds; what has not ended by then never will
_LONGEST = 24 * 3600.0  # seconds of the clock; a test that waits longer waits for ever
_THREADS = frozenset({trio.to_thread.run_sync.__code__, WAITING_FOR_FUNCTION})


@attrs.define(eq=False)
class LeaseClock(trio.abc.Clock):
    """trio's `MockClock`, gated; the leases in the database follow it.

    It stands still but while `advance` or `autojump` moves it, and then goes from one thing that is
    due to the next, as real time would.  Before each step it lets everything come to rest: no task can
    go on, no database call is under way, no doorbell rings unheard, no thread works.  Things due at the
    same instant are done in any order, as always in trio; a test that looks between them looks at
    an odd second.

    Attributes:
        waits_for_threads: False for a test of a thread that hangs.
    """

    waits_for_threads: bool = True
    _clock: MockClock = attrs.field(factory=MockClock, init=False)
    _pools: list[Pool] = attrs.field(factory=list, init=False)
    _holds: int = attrs.field(default=0, init=False)

    # --- what trio asks of a clock --------------------------------------------------------------

    def start_clock(self) -> None:
        """Start with a run."""
        self._clock.start_clock()

    def current_time(self) -> float:
        """Return the seconds that have passed."""
        return self._clock.current_time()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds until *deadline*, as far as trio may sleep."""
        return self._clock.deadline_to_sleep_time(deadline)

    # --- what tests ask -------------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the time that lease statements are told (UTC)."""
        return EPOCH + timedelta(seconds=self.current_time())

    @asynccontextmanager
    async def open_pool(self, dsn: str, *, size: int = 10) -> AsyncIterator[Pool]:
        """Open a pool whose leases follow this clock, and whose calls it waits for."""
        self._check()
        async with open_pool(dsn, size=size, now=self.now) as pool:
            self._pools.append(pool)
            try:
                yield pool
            finally:
                self._pools.remove(pool)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the clock from moving while something is under way that it cannot see.

        That is what other processes do: an HTTP server elsewhere, a command that runs.
        """
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    async def settle(self) -> None:
        """Return when nothing goes on any more, without letting time pass.

        Raises:
            AssertionError: something goes on for ever; the message says what.
        """
        self._check()
        await settle(self._pools, self._others)

    async def advance(self, seconds: float) -> None:
        """Let *seconds* pass, and all that is due until then, and at their end, be done.

        Raises:
            AssertionError: as `settle`.
        """
        await self.settle()
        end = self.current_time() + seconds
        while (left := end - self.current_time()) > 0:
            self._clock.jump(min(_until_due(), left))
            await self.settle()

    @asynccontextmanager
    async def autojump(self) -> AsyncIterator[None]:
        """Let time pass whenever nothing goes on, as long as the context is open.

        Raises:
            AssertionError: as `settle`; or a day has passed, or nobody waits for time to pass, and
                still what the context waits for did not come.
        """
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def jump() -> None:
                nonlocal failure
                try:
                    await self._jump_on()
                except AssertionError as error:
                    failure = error
                    nursery.cancel_scope.cancel()

            nursery.start_soon(jump, name="autojump")
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised again below: the nursery would wrap it
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _jump_on(self) -> None:
        end, moved_at = self.current_time() + _LONGEST, time.monotonic()
        while self.current_time() < end:
            await self.settle()
            due_in = _until_due()
            if due_in < math.inf:
                self._clock.jump(due_in)
                moved_at = time.monotonic()
            elif time.monotonic() > moved_at + _PATIENCE:
                raise AssertionError("no task waits for time to pass, and it did not come")
        raise AssertionError(f"{_LONGEST:g} seconds have passed on the clock, and it did not come")

    def _others(self) -> Iterator[str]:
        if self._holds:
            yield f"{self._holds} that hold the clock"
        if self.waits_for_threads and (count := sum(map(_is_in_thread, _tasks()))):
            yield f"{count} threads"

    def _check(self) -> None:
        if trio.lowlevel.current_clock() is not self:
            raise RuntimeError(
                "this trio run has another clock: pytest-trio takes it from the parameters of the test "
                "itself, so lease_clock must be among them"
            )


def open_pool_on_clock(
    dsn: str, now: Callable[[], datetime | None] = lambda: None
) -> AbstractAsyncContextManager[Pool]:
    """Open a pool that follows the clock of this run, if it is a `LeaseClock`; else *now*."""
    clock = trio.lowlevel.current_clock()
    return clock.open_pool(dsn) if isinstance(clock, LeaseClock) else open_pool(dsn, now=now)


def autojumping() -> AbstractAsyncContextManager[None]:
    """Let time pass in the context, as it does by itself where the clock is no `LeaseClock`."""
    clock = trio.lowlevel.current_clock()
    return clock.autojump() if isinstance(clock, LeaseClock) else nullcontext()


async def settle(pools: Collection[Pool], others: Callable[[], Iterable[str]] = tuple) -> None:
    """Return when nothing goes on any more: no task, no call in *pools*, none of *others*.

    Raises:
        AssertionError: something goes on for ever; the message says what.
    """
    await _rest(pools, others)
    heard = -1
    while heard != (sent := sum(pool.statements for pool in pools)):
        for pool in pools:
            await pool.flush()
        heard = sent
        await _rest(pools, others)


async def _rest(pools: Collection[Pool], others: Callable[[], Iterable[str]]) -> None:
    give_up = time.monotonic() + _PATIENCE
    while True:
        await wait_all_tasks_blocked(_CUSHION)
        calls = sum(pool.in_flight for pool in pools)
        busy = [f"{calls} database calls"] * bool(calls) + [*others()]
        if not busy:
            return
        if time.monotonic() > give_up:
            raise AssertionError(f"something never ends: {', '.join(busy)}")


def _until_due() -> float:
    """Return the seconds until the next deadline there is; infinite when there is none."""
    return max(trio.lowlevel.current_statistics().seconds_to_next_deadline, 0.0)


def _tasks() -> Iterator[trio.lowlevel.Task]:
    """Walk all tasks of this run."""
    found = [root] if (root := trio.lowlevel.current_root_task()) else []
    while found:
        task = found.pop()
        yield task
        found += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


def _is_in_thread(task: trio.lowlevel.Task) -> bool:
    """Tell whether *task* waits for a thread: trio keeps no public count of them."""
    return any(frame.f_code in _THREADS for frame, _ in task.iter_await_frames())
