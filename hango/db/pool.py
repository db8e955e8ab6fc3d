"""The bridge between trio and asyncpg: the only place where a connection is used.

Rule: one unit of work is one asyncio function, run in one hop, so that a trio cancellation can never
tear a transaction apart or leak a connection.  Reads can be cancelled; writes are shielded and bounded,
since a cancelled write may have been committed all the same.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TypeVar

import attrs
import trio
import trio_asyncio

from hango.db.asyncio_loop import open_loop
from hango.db.checkout import Connections
from hango.db.connections import (
    STATEMENT_DEADLINE,
    Connection,
    Connector,
    PooledConnection,
    Urgency,
)
from hango.db.failures import BROKEN, translate
from hango.db.health import RepeatedWork, Writability, refuse_read_only
from hango.db.notifications import Notifications, open_notifications
from hango.db.queries import Query, Row
from hango.db.silence import SilenceWatch
from hango.db.units import Work, fetch, nothing
from hango.errors import StoreUnavailable

T = TypeVar("T")

DEADLINE = 20.0
"""Seconds that a unit of work may take by default, waiting for a connection included; once it is sent,
`STATEMENT_DEADLINE` bounds it as well."""

_RESERVED = 2  # connections that only executors use, of ten or more; one of five


@attrs.define(eq=False)
class Pool:
    """The process's connections to one database.

    Attributes:
        now: the time lease statements are told; None (outside tests, always) leaves it to Postgres.
    """

    now: Callable[[], datetime | None]
    _connections: Connections
    _watch: SilenceWatch
    _writability: Writability = attrs.field(factory=Writability)
    _repeated: RepeatedWork = attrs.field(factory=RepeatedWork)
    _urgency: Urgency = Urgency.OTHER
    _place: int | None = None  # in the line of those who wait; None for its end, each time
    _listening: list[Notifications] = attrs.field(factory=list)
    _spare: list[Connection] = attrs.field(factory=list)  # to listen on; none or one

    def for_executors(self) -> Pool:
        """Return this pool as executors see it: their work goes before that of all others."""
        return attrs.evolve(self, urgency=Urgency.EXECUTOR)

    def keeping_place(self) -> Pool:
        """Return this pool with one place in the line: what is repeated over it does not lose that."""
        return attrs.evolve(self, place=self._connections.place())

    @property
    def connector(self) -> Connector:
        """What makes its connections."""
        return self._connections.connector

    @connector.setter
    def connector(self, connector: Connector) -> None:
        self._connections.connector = connector

    @property
    def _loop(self) -> trio_asyncio.TrioEventLoop:
        return self._connections.loop

    @property
    def size(self) -> int:
        """Connections that may work at once; one more is only for heartbeats."""
        return self._connections.size

    @property
    def idle(self) -> int:
        """How many more may work now."""
        return self._connections.idle

    @property
    def waiting(self) -> int:
        """How many wait for a connection."""
        return self._connections.waiting

    @property
    def in_flight(self) -> int:
        """Units of work, and exchanges of those who listen, now under way."""
        return self._connections.traffic.in_flight

    @property
    def statements(self) -> int:
        """Units of work begun since the pool was opened."""
        return self._connections.traffic.statements

    async def rows(self, query: Query, **values: object) -> Sequence[Row]:
        """Read; may be cancelled.  Sent once more if the connection turns out to be dead.

        Raises:
            StoreUnavailable: no database, or no connection free in time.
        """
        return await self._run(fetch(query, values), DEADLINE, write=False)

    async def one(self, query: Query, **values: object) -> Row | None:
        """Read the first row, or None when there is none; otherwise as `rows`."""
        rows = await self.rows(query, **values)
        return rows[0] if rows else None

    async def write(
        self, query: Query, *, deadline: float = DEADLINE, **values: object
    ) -> Sequence[Row]:
        """Run one writing statement; cancelled before it is sent, or not at all.

        Args:
            query: the statement.
            deadline: seconds it may take, waiting for a connection included.
            values: its arguments.

        Raises:
            NotSent: no connection in time.
            StoreUnavailable: no database, or no answer in time: it may have been committed.
            UniqueViolation: the key is taken.
        """
        return await self.unit(fetch(query, values), deadline=deadline)

    async def unit(self, work: Work[T], *, deadline: float = DEADLINE) -> T:
        """Run *work* (asyncio code) on one connection; may hold a transaction.  As `write`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._run(work, deadline, write=True)

    async def heartbeat_write(
        self, query: Query, *, deadline: float, **values: object
    ) -> Sequence[Row]:
        """Run a heartbeat: before all others, with one connection more than they.  As `write`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._run(fetch(query, values), deadline, write=True, urgency=Urgency.HEARTBEAT)

    async def ping(self, *, deadline: float) -> None:
        """Return if the database is there and takes writes.

        Args:
            deadline: seconds to wait for its answer.

        Raises:
            NotWritable: it is there, but a standby, read-only, or its disk was full a moment ago.
            StoreUnavailable: it is not there, or did not answer in time.
        """
        await self._run(refuse_read_only, deadline, write=False)
        self._writability.check()

    async def warm_up(self) -> None:
        """Open the connections that may be hard to have later: for heartbeats, and to listen.

        Raises:
            StoreUnavailable: no database, or not as many connections.
        """
        await self._run(nothing, DEADLINE, write=False, urgency=Urgency.HEARTBEAT)
        if not self._spare:
            with self._connections.traffic.track():
                self._spare.append(await self._loop.run_aio_coroutine(self.connector.connect()))

    def note_repeat(self, error: StoreUnavailable) -> None:
        """Take note, for the log, that something of a run is sent again because of *error*."""
        self._repeated.note(error)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Notifications]:
        """Listen to the doorbell on a connection of its own; see `Notifications`.

        Raises:
            StoreUnavailable: no database.
        """
        spare = self._spare.pop() if self._spare else None
        traffic = self._connections.traffic
        async with open_notifications(self._loop, self.connector, traffic, spare) as notifications:
            self._listening.append(notifications)
            try:
                yield notifications
            finally:
                self._listening.remove(notifications)

    async def flush(self) -> None:
        """Return when who listens here has all that was notified before; for tests that own time."""
        for notifications in tuple(self._listening):
            with suppress(StoreUnavailable):  # its reader finds out by itself
                await notifications.flush()

    def start_soon(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Run *work* beside whoever uses the pool; cancelled when the pool is closed."""
        self._connections.start_soon(work, name=name)

    def _close(self) -> None:
        self._connections.close()
        for connection in self._spare:
            connection.terminate()

    async def _run(
        self, work: Work[T], deadline: float, *, write: bool, urgency: Urgency | None = None
    ) -> T:
        """Run *work* in one hop on a connection, whatever happens giving that back."""
        connections, until = self._connections, trio.current_time() + deadline
        urgency = self._urgency if urgency is None else urgency
        connections.traffic.in_flight += 1
        try:
            held = await connections.check_out(urgency, until, self._place)
            try:
                return await self._send(work, held, until, write=write)
            except BROKEN:
                if write:
                    raise
            # Whatever was as old as that connection is closed by now, so this one is good.
            held = await connections.check_out(urgency, until, self._place)
            return await self._send(work, held, until, write=write)
        except Exception as error:
            if (translated := translate(error)) is None:
                raise
            self._writability.note(translated)
            raise translated from error
        finally:
            connections.traffic.in_flight -= 1
            if connections.quiet:
                self._watch.rest()

    async def _send(self, work: Work[T], held: PooledConnection, until: float, *, write: bool) -> T:
        """Run *work* on *held*, and give that back in the state it is then in."""
        connections = self._connections
        connections.traffic.statements += 1
        held.sent_at = held.silent_since = time.monotonic()
        self._watch.begin()
        until = min(until, trio.current_time() + STATEMENT_DEADLINE)
        try:
            with trio.CancelScope(deadline=until, shield=write) as scope:
                answer: T = await connections.loop.run_aio_coroutine(work(held.connection))
        except BROKEN:
            connections.convict(held.sent_at)
            connections.drop(held)
            raise
        except Exception:  # the server has answered
            connections.check_in(held)
            raise
        except BaseException:
            # Cut between two messages of one statement, the server goes on holding its locks until the
            # next one comes, and no flag of the connection tells: it cannot be used again.
            connections.dismiss(held)
            raise
        if scope.cancelled_caught:
            connections.convict(held.sent_at)
            connections.dismiss(held)
            raise trio.TooSlowError
        connections.check_in(held)
        if write and answer:
            self._writability.written()
        return answer


@asynccontextmanager
async def open_pool(
    dsn: str,
    *,
    size: int = 10,
    lease_ttl: float = 90.0,
    now: Callable[[], datetime | None] = lambda: None,
) -> AsyncIterator[Pool]:
    """Open a pool; connections are made when they are first needed.

    Args:
        dsn: ``postgresql://…``.
        size: connections for work; one more is for heartbeats, and one for each `listen`.
        lease_ttl: seconds; statements and locks give up well before a lease could lapse.
        now: the time that lease statements are told, for tests that own time.

    Raises:
        ConfigError: *dsn* cannot be used.
    """
    connector = Connector.to(dsn, lease_ttl)
    reserved = min(_RESERVED, size // 5)
    failure: Exception | None = None
    async with open_loop() as loop, trio.open_nursery() as nursery:
        connections = Connections(connector, size, reserved, loop, nursery)
        watch = SilenceWatch(connections)
        nursery.start_soon(watch.run, name="silence watch")
        pool = Pool(now, connections, watch)
        try:
            yield pool
        except Exception as error:  # noqa: BLE001  # raised again below: the nurseries would wrap it
            failure = error
        finally:
            pool._close()  # noqa: SLF001  # our own, in this module
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
