"""Threads for the sync functions of tools, guardrails and verifiers.

A thread cannot be killed: if its call is cancelled or times out, it is abandoned, and counts as stuck
until its function returns.
Rule: waiting for a thread has no other outcome than a thread.  The line is fair between tenants, and
threads that are stuck are bounded for each function and tenant, so they delay nobody else.  Every call
gets a new thread: what a function leaves in its thread is not there for the next, another tenant's.
"""

from __future__ import annotations

import contextvars
import inspect
import math
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import NoReturn, TypeAlias

import attrs
import sniffio
import trio
from trio import _threads as trio_threads

# Functions that run at once, mostly waiting: as many as a process executes runs (HANGO_RUN_WORKERS).
MAX_THREADS = 64
# Those of one tenant: a quarter is left to others.
MAX_PER_TENANT = 48
# Stuck threads of one function and tenant; of one tenant; and of all tenants that have any.
MAX_STUCK = 10
MAX_STUCK_PER_TENANT = 20
MAX_STUCK_IN_ALL = 100


def is_async(function: object) -> bool:
    """Return whether *function* can be called on the event loop; one that is sync needs a thread."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # an object whose call is async
    )


RunInThread: TypeAlias = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a function in a new thread; returns what it returns, or raises what it raises.

Cancelled, it raises at once, and the result is dropped.  A function that has started goes on; one that
has not never will.
"""


class FunctionStuckError(Exception):
    """So many calls of a function are stuck that no other starts."""


@attrs.frozen
class Owner:
    """Whom a thread is for.

    Attributes:
        tenant: None outside a database.
        function: its name.
    """

    tenant: Hashable = None
    function: str = ""


_NOBODY = Owner()


@attrs.define(eq=False)
class Threads:
    """The threads of one kind of functions, such as the tools of a registry.

    Attributes:
        max_threads: functions that run at once; others wait.
        max_per_tenant: those of one tenant.
        max_stuck: stuck threads of one function of a tenant with which no other of it starts.
        _running: threads that are taken, by tenant.
        _stuck: by owner; a stuck thread is not taken any more.
        _waiting: by owner, the first to come first.
        _served: when each tenant that waits or runs was last given a thread, in `_numbers`.
        _lock: for all of these, which threads change, too.
        _numbers: of waiters and of threads given, in the order in which they came.
    """

    max_threads: int = MAX_THREADS
    max_per_tenant: int = MAX_PER_TENANT
    max_stuck: int = MAX_STUCK
    _running: Counter[Hashable] = attrs.field(factory=Counter, init=False)
    _stuck: Counter[Owner] = attrs.field(factory=Counter, init=False)
    _waiting: dict[Owner, deque[_Waiter]] = attrs.field(factory=dict, init=False)
    _served: dict[Hashable, int] = attrs.field(factory=dict, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _numbers: count[int] = attrs.field(factory=count, init=False)

    @property
    def stuck(self) -> int:
        """Threads that were abandoned and have not ended."""
        return self._stuck.total()

    async def run(self, function: Callable[[], object], owner: Owner = _NOBODY) -> object:
        """Wait for a thread, as `reserve` does, and run *function* in it."""
        async with self.reserve(owner) as run:
            return await run(function)

    @asynccontextmanager
    async def reserve(self, owner: Owner, *, patience: float = math.inf) -> AsyncIterator[RunInThread]:
        """Wait for a thread, and keep it while the block runs.

        Args:
            owner: whom it is for.
            patience: seconds to wait while calls of the same function are stuck.

        Raises:
            FunctionStuckError: they were for so long.
        """
        waiter = _Waiter(next(self._numbers), trio.lowlevel.current_trio_token())
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(waiter)
            self._grant()
        try:
            while not waiter.has_thread():
                with trio.move_on_after(patience):
                    await waiter.event.wait()
                if not waiter.has_thread() and self._is_stuck(owner):
                    raise FunctionStuckError(
                        f"{self._stuck[owner]} earlier calls of it have not returned"
                    )
            yield partial(self._run, owner)
        finally:
            self._give_back(owner, waiter)

    def _give_back(self, owner: Owner, waiter: _Waiter) -> None:
        with self._lock:
            if waiter.has_thread():
                self._running[owner.tenant] -= 1
                self._running = +self._running  # without zeros
            else:
                self._waiting[owner].remove(waiter)
            self._grant()

    def _grant(self) -> None:
        """Give free threads to waiters: to the tenant that has the fewest, tenants in turn."""
        while self._running.total() < self.max_threads:
            able = [owner for owner, line in self._waiting.items() if line and self._may_start(owner)]
            if not able:
                break
            owner = min(able, key=self._turn)
            self._running[owner.tenant] += 1
            self._served[owner.tenant] = next(self._numbers)
            self._waiting[owner].popleft().grant()
        self._waiting = {owner: line for owner, line in self._waiting.items() if line}
        tenants = {owner.tenant for owner in self._waiting} | set(self._running)
        self._served = {it: number for it, number in self._served.items() if it in tenants}

    def _turn(self, owner: Owner) -> tuple[int, int, int]:
        tenant = owner.tenant
        return self._running[tenant], self._served.get(tenant, -1), self._waiting[owner][0].number

    def _may_start(self, owner: Owner) -> bool:
        return self._running[owner.tenant] < self.max_per_tenant and not self._is_stuck(owner)

    def _is_stuck(self, owner: Owner) -> bool:
        of_tenant = sum(n for it, n in self._stuck.items() if it.tenant == owner.tenant)
        return (
            self._stuck[owner] >= self.max_stuck
            or of_tenant >= MAX_STUCK_PER_TENANT
            or (of_tenant > 0 and self.stuck >= MAX_STUCK_IN_ALL)
        )

    async def _run(self, owner: Owner, function: Callable[[], object]) -> object:
        await trio.lowlevel.checkpoint_if_cancelled()
        job = _Job(function, trio.lowlevel.current_task(), trio.lowlevel.current_trio_token())
        name = f"hango {owner.function}"
        threading.Thread(target=self._work, args=(job, owner), name=name, daemon=True).start()
        try:
            await trio.lowlevel.wait_task_rescheduled(job.abandon)
        finally:
            self._leave(job, owner)
        return job.result()

    def _work(self, job: _Job, owner: Owner) -> None:
        """Do *job*; in its thread."""
        with self._lock:
            if job.left:
                return
            job.running = True
        job.do()
        self._finish(job, owner)
        with suppress(trio.RunFinishedError):
            job.token.run_sync_soon(job.wake)

    def _finish(self, job: _Job, owner: Owner) -> None:
        with self._lock:
            job.running = False
            if job.left:
                self._stuck[owner] -= 1
                self._stuck = +self._stuck  # without zeros
                self._grant()

    def _leave(self, job: _Job, owner: Owner) -> None:
        """Note that nobody waits for *job* any more; in the loop's thread."""
        with self._lock:
            job.left = True
            self._stuck[owner] += job.running


# The frame in which a task waits for a function, for clocks that must not run meanwhile
WAITING_FOR_FUNCTION = Threads._run.__code__  # noqa: SLF001 - this module's own


@attrs.define(eq=False)
class _Waiter:
    """Somebody in the line.

    Attributes:
        number: its place in the order in which all came.
        token: of its run of trio, which may be another than that of who grants.
    """

    number: int
    token: trio.lowlevel.TrioToken
    event: trio.Event = attrs.field(factory=trio.Event)
    _granted: bool = attrs.field(default=False, init=False)

    def has_thread(self) -> bool:
        """Return whether it was given one."""
        return self._granted

    def grant(self) -> None:
        """Give it a thread; from any thread."""
        self._granted = True
        self.token.run_sync_soon(self.event.set)


@attrs.define(eq=False)
class _Job:
    """One call of a function.

    Attributes:
        task: who waits for it; None once nobody does.
        running: its thread is in it; under the lock of its `Threads`, as `left`.
        left: nobody waits for it.
        value, error: what the function returned or raised.
        cancel: where trio finds in a thread how to raise the cancellation.
    """

    function: Callable[[], object]
    task: trio.lowlevel.Task | None
    token: trio.lowlevel.TrioToken
    running: bool = False
    left: bool = False
    value: object = None
    error: BaseException | None = None
    cancel: list[Callable[[], NoReturn] | None] = attrs.field(factory=lambda: [None])
    context: contextvars.Context = attrs.field(factory=contextvars.copy_context)

    def do(self) -> None:
        """Call the function; in its thread, where `trio.from_thread` works as in trio's own threads."""
        here = trio_threads.PARENT_TASK_DATA
        here.token, here.abandon_on_cancel = self.token, True
        here.cancel_register, here.task_register = self.cancel, [None]
        self.context.run(sniffio.current_async_library_cvar.set, None)
        try:
            self.value = self.context.run(self.function)
        except BaseException as error:  # noqa: BLE001  # raised where the call is waited for
            self.error = error

    def wake(self) -> None:
        """Go on with the task that waits; in the loop's thread."""
        if self.task is not None:
            trio.lowlevel.reschedule(self.task)
            self.task = None

    def abandon(self, raise_cancel: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
        """Stop waiting."""
        self.cancel[0], self.task = raise_cancel, None
        return trio.lowlevel.Abort.SUCCEEDED

    def result(self) -> object:
        """Return or raise what the function did."""
        error, self.error = self.error, None
        if error is None:
            return self.value
        try:
            raise error
        finally:
            del error  # or its traceback holds itself
