"""The open connections of a process: who gets which, and when one is opened or closed.

A stack: the one that answered last is used first, so that there are no more than are needed and those
that are not needed grow old.  A connection is opened only when none is idle and a task waits that may
have one; that task takes what comes first, the new one or one given back.

Rule: what is handed out comes back exactly once, by `check_in`, `drop` or `dismiss`.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import attrs
import trio
import trio_asyncio

from hango.db.connections import Connection, Connector, PooledConnection, Traffic, Urgency
from hango.db.waiting import Waiter, WaitingLine
from hango.errors import NotSent, StoreUnavailable

MAX_IDLE = 180.0
"""Seconds after which an unused connection is closed: sooner than what forgets idle connections on the
way (240 s is the shortest default of the large clouds)."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0  # seconds between two tries to open one more
_GOODBYE = 1.0  # seconds for a statement to be cancelled before its connection is cut

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Connections:
    """The connections of a process to one database.

    Attributes:
        connector: makes them.
        size: how many may work at once; one more is only for heartbeats.
        reserved: how many of these only executors may use.
        traffic: counts what is under way.
        loop: where asyncio runs.
    """

    connector: Connector
    size: int
    reserved: int
    loop: trio_asyncio.TrioEventLoop
    _nursery: trio.Nursery  # of the tasks that open and close
    traffic: Traffic = attrs.field(factory=Traffic, init=False)
    # by the time of their last answer, the latest on the right
    _idle: deque[PooledConnection] = attrs.field(factory=deque, init=False)
    _busy: dict[PooledConnection, None] = attrs.field(factory=dict, init=False)
    _count: dict[Urgency, int] = attrs.field(factory=lambda: dict.fromkeys(Urgency, 0), init=False)
    _line: WaitingLine = attrs.field(factory=WaitingLine, init=False)
    _places: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _opening: int = attrs.field(default=0, init=False)
    _closing: int = attrs.field(default=0, init=False)
    # why the last one could not be opened; None when it could
    _failure: StoreUnavailable | None = attrs.field(default=None, init=False)
    _paused: bool = attrs.field(default=False, init=False)  # none is opened now, after a failure
    _pause: float = attrs.field(default=_FIRST_PAUSE, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    @property
    def idle(self) -> int:
        """How many more may work; equals `size` when nothing is going on."""
        return self.size - self._count[Urgency.EXECUTOR] - self._count[Urgency.OTHER]

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._line)

    @property
    def open(self) -> int:
        """Connections there are, used or not."""
        return len(self._idle) + len(self._busy)

    @property
    def quiet(self) -> bool:
        """Whether nothing is handed out."""
        return not self._busy

    def busy(self) -> tuple[PooledConnection, ...]:
        """Return what is handed out, the longest first."""
        return tuple(self._busy)

    def start_soon(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Run *work* until it ends, or the connections are closed."""
        self._nursery.start_soon(work, name=name)

    def place(self) -> int:
        """Return the place of who comes now; work that is repeated gives the place it had."""
        return next(self._places)

    # --- handing out --------------------------------------------------------------------------

    async def check_out(
        self, urgency: Urgency, until: float, place: int | None = None
    ) -> PooledConnection:
        """Return a connection; waits in the line if need be, until *until* (trio clock, seconds).

        Raises:
            NotSent: none came free in time, or there is no database.
        """
        self._close_old()
        if self._idle and self._may_have(urgency) and (found := self._pop()):
            return self._hand_out(found, urgency)
        waiter = Waiter(self.place() if place is None else place, urgency)
        self._line.add(waiter)
        self._open_more()
        try:
            with trio.move_on_at(until):
                await waiter.ready.wait()
        except BaseException:
            if waiter.connection is not None:  # it came in the same instant
                self.check_in(waiter.connection)
            raise
        finally:
            self._line.discard(waiter)
        if waiter.connection is not None:
            return waiter.connection
        raise NotSent(waiter.failure or self._why_none())

    def _why_none(self) -> str:
        reason = f"; no other can be opened: {self._failure}" if self._failure else ""
        return f"no connection to the database came free in time{reason}"

    def _may_have(self, urgency: Urgency) -> bool:
        """Tell whether one more connection may be used for such work."""
        return self._room(urgency) > 0

    def _room(self, urgency: Urgency) -> int:
        """Return how many more connections may be used for such work.

        While no more can be opened, what there is is all there can be, and is shared likewise.
        """
        total = self.open if self._paused and self.open else self.size + 1
        executors, others = self._count[Urgency.EXECUTOR], self._count[Urgency.OTHER]
        working = max(total - 1, 1) - executors - others
        if urgency is Urgency.HEARTBEAT:
            return 1
        if urgency is Urgency.EXECUTOR:
            return working
        return min(working, max(total - 1 - self.reserved, 1) - others)

    def _hand_out(self, held: PooledConnection, urgency: Urgency) -> PooledConnection:
        self._busy[held] = None
        self._count[urgency] += 1
        held.urgency = urgency
        return held

    def _pop(self) -> PooledConnection | None:
        """Take the idle connection that answered last and is still open."""
        while self._idle:
            found = self._idle.pop()
            if found.usable:
                return found
            found.connection.terminate()
        return None

    def _serve(self) -> None:
        """Give idle connections to whoever is next, and open more if there are too few."""
        while self._idle and (waiter := self._line.first(self._may_have)):
            if (found := self._pop()) is None:
                break
            self._line.discard(waiter)
            waiter.connection = self._hand_out(found, waiter.urgency)
            waiter.ready.set()
        self._open_more()

    # --- taking back --------------------------------------------------------------------------

    def check_in(self, held: PooledConnection) -> None:
        """Take back a connection whose server has answered."""
        self._take_back(held)
        if held.usable and not self._closed:
            held.answered_at = time.monotonic()
            self._idle.append(held)
        else:
            held.connection.terminate()
        self._close_old()
        self._serve()

    def drop(self, held: PooledConnection) -> None:
        """Take back a connection that is of no further use."""
        self._take_back(held)
        held.connection.terminate()
        self._serve()

    def dismiss(self, held: PooledConnection) -> None:
        """Take back a connection in the middle of a statement, which the server is told to cancel."""
        self._take_back(held)
        if self._closed:
            held.connection.terminate()
            return
        self._closing += 1
        self._nursery.start_soon(self._close, held.connection, name="close a connection")

    def _take_back(self, held: PooledConnection) -> None:
        del self._busy[held]
        self._count[held.urgency] -= 1

    def convict(self, since: float) -> None:
        """Close every idle connection that has not answered since *since* (monotonic clock)."""
        while self._idle and self._idle[0].answered_at <= since:
            self._idle.popleft().connection.terminate()

    def _close_old(self) -> None:
        if self._idle and self._idle[0].answered_at < time.monotonic() - MAX_IDLE:
            self.convict(time.monotonic() - MAX_IDLE)

    def close(self) -> None:
        """Close every connection at once; what is handed out is closed when it comes back."""
        self._closed = True
        while self._idle:
            self._idle.pop().connection.terminate()

    # --- opening and closing, beside the line ---------------------------------------------------

    def _open_more(self) -> None:
        """Begin to open as many connections as tasks wait for."""
        if self._closed or (self._paused and self.open):
            return
        free = self.size + 1 - self.open - self._opening - self._closing
        for _ in range(min(self._line.demand(self._room) - self._opening, free)):
            self._opening += 1
            self._nursery.start_soon(self._open, name="open a connection")

    async def _open(self) -> None:
        """Open a connection, and give it to whoever is next."""
        self.traffic.in_flight += 1
        try:
            connection = await self.loop.run_aio_coroutine(self.connector.connect())
        except StoreUnavailable as error:
            failure: StoreUnavailable | None = error
        else:
            failure = None
        finally:
            self.traffic.in_flight -= 1
            self._opening -= 1
        self._failure = failure
        if failure is None:
            self.adopt(connection)
        elif self.open or self._opening:
            await self._pause_opening()
        else:
            self._line.fail(str(failure))

    def adopt(self, connection: Connection) -> None:
        """Take in a connection that was just opened, unless there are enough."""
        self._pause = _FIRST_PAUSE
        if self._closed or self.open >= self.size + 1:
            connection.terminate()
            return
        self._idle.append(PooledConnection(connection, time.monotonic()))
        self._serve()

    async def _pause_opening(self) -> None:
        """Let those who wait have what there is, and try again later."""
        if self._paused:
            return
        _log.warning("no more connections can be opened, %d are used: %s", self.open, self._failure)
        self._paused = True
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        self._serve()
        await trio.sleep(pause)
        self._paused = False
        self._serve()

    async def _close(self, connection: Connection) -> None:
        """Close a connection in good order; as a rule its server has been sent a cancel by now."""
        self.traffic.in_flight += 1
        try:
            with trio.CancelScope(shield=True):
                await self.loop.run_aio_coroutine(connection.close(timeout=_GOODBYE))
        except Exception as error:  # noqa: BLE001 - it is cut now, whatever it says
            _log.debug("a connection could not be closed in good order: %r", error)
        finally:
            connection.terminate()
            self.traffic.in_flight -= 1
            self._closing -= 1
        self._serve()
