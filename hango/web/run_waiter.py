"""Long polling (``Prefer: wait``): one LISTEN connection of the process wakes all waiting requests.

Rule: a notification only says when to read; each request reads its run again, under its own visibility.
A waiting request holds no connection, and while none waits no LISTEN connection is open.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import attrs
import trio

from hango.db.pool import Pool
from hango.domain import Run, Scope
from hango.errors import StoreUnavailable
from hango.store.runs import Runs

# seconds between two reads of a waiting request while no LISTEN connection is up
POLL_INTERVAL = 2.0
# seconds the connection is kept after the last wait, so that a client that waits in a loop finds it
KEEP_OPEN = 30.0
# seconds before a lost connection is opened again: the first time, and the most it grows to
FIRST_DELAY, MAX_DELAY = 0.1, 5.0

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Waiter:
    """A waiting request; *notified* is replaced before each read, so that no notification is lost."""

    notified: trio.Event = attrs.field(factory=trio.Event)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109  # a wait that times out is over
        """Wait for a notification, at most *timeout* seconds."""
        with trio.move_on_after(timeout):
            await self.notified.wait()
        self.notified = trio.Event()


@attrs.define(eq=False)
class RunWaiter:
    """Waits for the ends of runs, for all requests of this process.

    Attributes:
        draining: when set, every wait ends.
    """

    _pool: Pool
    _runs: Runs
    draining: trio.Event
    _waiters: dict[UUID, set[_Waiter]] = attrs.field(factory=dict, init=False)
    # whether the LISTEN connection is up
    _listening: bool = attrs.field(default=False, init=False)
    # set when a request waits, so that the connection is opened
    _wanted: trio.Event = attrs.field(factory=trio.Event, init=False)
    # its deadline is when the connection is closed for want of waiting requests
    _connection: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._waiters.values()))

    async def wait(self, scope: Scope, run_id: UUID, seconds: float) -> Run:
        """Return a run when it has ended, after *seconds*, or when the drain begins: as it is then.

        Raises:
            NotFound: there is no such run that *scope* may see (any more).
            StoreUnavailable: there is no database at the first read, or at the end of the wait.
        """
        run = await self._runs.get(scope, run_id)
        if run.state.terminal or not seconds:
            return run
        with trio.move_on_after(seconds), self._waiter(run_id) as waiter:
            while not self.draining.is_set():
                known = False
                with suppress(StoreUnavailable):
                    run = await self._runs.get(scope, run_id)
                    if run.state.terminal:
                        return run
                    known = True
                await waiter.wait(math.inf if known and self._listening else POLL_INTERVAL)
        return await self._runs.get(scope, run_id)

    @contextmanager
    def _waiter(self, run_id: UUID) -> Iterator[_Waiter]:
        waiter = _Waiter()
        waiters = self._waiters.setdefault(run_id, set())
        waiters.add(waiter)
        self._wanted.set()
        self._connection.deadline = math.inf
        try:
            yield waiter
        finally:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[run_id]
            if not self._waiters:
                self._connection.deadline = trio.current_time() + KEEP_OPEN

    async def listen(self) -> None:
        """Wake waiting requests, for ever; keep a LISTEN connection only while there are any."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wake_at_drain)
            delay = FIRST_DELAY
            while True:
                if not self._waiters:
                    self._wanted = trio.Event()
                    await self._wanted.wait()
                delay = FIRST_DELAY if await self._listen() else min(2 * delay, MAX_DELAY)
                await trio.sleep(delay)

    async def _wake_at_drain(self) -> None:
        await self.draining.wait()
        self._wake_all()

    async def _listen(self) -> bool:
        """Forward notifications until the connection is lost or closed; return whether it was up."""
        opened = False
        try:
            with trio.CancelScope() as self._connection:
                async with self._pool.listen() as notifications:
                    self._listening = opened = True
                    self._wake_all()  # what was sent before this was missed
                    async for notification in notifications:
                        if notification is None:
                            self._wake_all()
                        else:
                            self._wake(notification.run_id)
        except StoreUnavailable as error:
            _log.warning(
                "LISTEN connection lost; waiting requests poll every %g s until it is back: %s",
                POLL_INTERVAL,
                error,
            )
        finally:
            self._listening = False
            self._wake_all()  # from now on they poll
        return opened

    def _wake(self, run_id: UUID) -> None:
        for waiter in self._waiters.get(run_id, ()):
            waiter.notified.set()

    def _wake_all(self) -> None:
        for run_id in self._waiters:
            self._wake(run_id)
