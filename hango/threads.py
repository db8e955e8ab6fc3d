"""Where sync functions of others run: threads, so that none of them can block the loop.

Rule: a thread cannot be killed.  One whose call has timed out or was cancelled is left behind and
counted; it keeps its place until it ends, and beyond a number of such threads no new one is started.
Used by tools, guardrails and completion gates; it knows nothing of any of them.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, MutableMapping
from functools import partial
from weakref import WeakKeyDictionary

import attrs
import trio

# Python's own default for thread pools at 8 cores is 12, trio's is 40; these mostly wait, as trio's do.
MAX_THREADS = 40
# Half: when this many hang, the others still have threads, and the process is worth a look.
MAX_STUCK = 20


def is_async(function: object) -> bool:
    """Return whether *function* can be called on the event loop; one that is sync needs a thread."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # an object whose call is async
    )


@attrs.define
class Threads:
    """The threads of one kind of functions, such as the tools of a registry.

    Attributes:
        max_threads: functions running at once in one run of trio; others wait, and their time runs.
        max_stuck: threads left behind beyond which `exhausted` holds.
        stuck: threads left behind that have not ended yet.
    """

    max_threads: int = MAX_THREADS
    max_stuck: int = MAX_STUCK
    stuck: int = attrs.field(default=0, init=False)
    _limiters: MutableMapping[trio.lowlevel.TrioToken, trio.CapacityLimiter] = attrs.field(
        factory=WeakKeyDictionary, init=False
    )
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @property
    def exhausted(self) -> bool:
        """Whether so many threads hang that no new one may start."""
        return self.stuck >= self.max_stuck

    async def run(self, function: Callable[[], object]) -> object:
        """Run *function* in a thread and return what it returned, or raise what it raised.

        Cancelled, it returns at once: a function that has begun goes on and its result is dropped, one
        that has not never will.
        """
        job = _Job(function)
        try:
            await trio.to_thread.run_sync(
                self._work, job, abandon_on_cancel=True, limiter=self._limiter()
            )
        finally:
            self._leave(job)
        return job.value

    def _limiter(self) -> trio.CapacityLimiter:
        """Return the places there are in this run of trio.

        Each run has its own: a thread that outlives its run gives its place back to nobody.
        """
        with self._lock:
            places = trio.CapacityLimiter(self.max_threads)
            return self._limiters.setdefault(trio.lowlevel.current_trio_token(), places)

    def _work(self, job: _Job) -> None:
        """Do *job*; in its thread."""
        with self._lock:
            if job.left:
                return
            job.running = True
        try:
            # not returned: trio refuses some values, and what may be returned is judged elsewhere
            job.value = job.function()
        finally:
            with self._lock:
                job.running = False
                self.stuck -= job.left

    def _leave(self, job: _Job) -> None:
        """Note that nobody waits for *job* any more; in the loop's thread."""
        with self._lock:
            job.left = True
            self.stuck += job.running


@attrs.define
class _Job:
    """One function to run; both marks are read and set under the lock.

    Attributes:
        value: what the function returned.
        running: its thread is in it.
        left: nobody waits for it.
    """

    function: Callable[[], object]
    value: object = None
    running: bool = False
    left: bool = False
