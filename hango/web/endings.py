"""Waiting for the end of a run: one ear on the doorbell for all who wait in this process.

Rule: a ring, or the silence of a dead line, only says when to read; what is answered was read from the
run's row, with the eyes of whoever asks.  Nobody who waits holds a connection, and while nobody waits
none is open.  `hango.web.runs` waits; `hango.web.server` runs `listen`, outside of all requests.
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

# seconds between two looks of one who waits while no ring can be heard
LOOK_EVERY = 2.0
# seconds an open line is kept after the last one has waited: a client that waits in a loop finds it
KEEP_OPEN = 30.0
# seconds until a line that died is opened again: at once, then twice as long each time it cannot be
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Waiter:
    """Somebody who waits; *bell* is replaced before each look, so that no ring falls between."""

    bell: trio.Event = attrs.field(factory=trio.Event)

    async def rung(self, patience: float) -> None:
        """Wait for a ring, but not longer than *patience* seconds."""
        with trio.move_on_after(patience):
            await self.bell.wait()
        self.bell = trio.Event()


@attrs.define(eq=False)
class Endings:
    """Where the ends of runs are waited for.

    Attributes:
        draining: set when nobody shall wait any longer.
    """

    _pool: Pool
    _runs: Runs
    draining: trio.Event
    _waiters: dict[UUID, set[_Waiter]] = attrs.field(factory=dict, init=False)
    _hearing: bool = attrs.field(default=False, init=False)
    # both are about the line: whether one is wanted at all, and when to hang up the one there is
    _wanted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _line: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiters.values()))

    async def wait(self, scope: Scope, run_id: UUID, seconds: float) -> Run:
        """Return a run when it has ended, *seconds* are over, or the drain begins: as it is then.

        Raises:
            NotFound: there is no such run that *scope* may see (any more).
            StoreUnavailable: there is no database; after the first look, only if time is over, too.
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
                await waiter.rung(math.inf if known and self._hearing else LOOK_EVERY)
        return await self._runs.get(scope, run_id)

    @contextmanager
    def _waiter(self, run_id: UUID) -> Iterator[_Waiter]:
        waiter = _Waiter()
        waiters = self._waiters.setdefault(run_id, set())
        waiters.add(waiter)
        self._wanted.set()
        self._line.deadline = math.inf
        try:
            yield waiter
        finally:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[run_id]
            if not self._waiters:
                self._line.deadline = trio.current_time() + KEEP_OPEN

    async def listen(self) -> None:
        """Tell those who wait what they should look at, for ever; listen only while somebody waits."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_of_drain)
            pause = FIRST_PAUSE
            while True:
                if not self._waiters:
                    self._wanted = trio.Event()
                    await self._wanted.wait()
                pause = FIRST_PAUSE if await self._hear() else min(2 * pause, LONGEST_PAUSE)
                await trio.sleep(pause)

    async def _tell_of_drain(self) -> None:
        await self.draining.wait()
        self._ring_all()

    async def _hear(self) -> bool:
        """Pass rings on until the line dies or is hung up; return whether there was one."""
        heard = False
        try:
            with trio.CancelScope() as self._line:
                async with self._pool.listen() as rings:
                    self._hearing = heard = True
                    self._ring_all()  # what was rung until now was not heard
                    async for ring in rings:
                        self._ring_all() if ring is None else self._ring(ring.run_id)
        except StoreUnavailable as error:
            _log.warning("ends of runs are not heard, those who wait look for them: %s", error)
        finally:
            self._hearing = False
            self._ring_all()  # let them change to looking
        return heard

    def _ring(self, run_id: UUID) -> None:
        for waiter in self._waiters.get(run_id, ()):
            waiter.bell.set()

    def _ring_all(self) -> None:
        for run_id in self._waiters:
            self._ring(run_id)
