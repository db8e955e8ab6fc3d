"""The bridge between trio and asyncpg: the only place where a connection is used.

One rule: one unit of work is one asyncio function, run in one hop, so that a trio cancellation can
never tear a transaction apart or leak a connection.  Reads can be cancelled; writes are shielded and
bounded, since a cancelled write may have been committed all the same.

Used by the other modules of the store; the rest of hango only opens it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TypeAlias, TypeVar

import attrs
import trio
import trio_asyncio

from hango.db.connections import BROKEN, Connection, Connector, counted, note_stray, translated
from hango.db.notifications import Notifications, open_notifications
from hango.db.queries import Query, Row
from hango.errors import StoreUnavailable

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], Awaitable[T]]

WRITE_DEADLINE = 10.0  # seconds; long for one statement, short for someone who waits
READ_DEADLINE = 30.0  # seconds


@attrs.define
class Slots:
    """A fixed number of connections, handed out first come, first served.

    A slot whose connection was never opened, or broke, holds None: whoever takes it opens one.
    """

    size: int
    _put: trio.MemorySendChannel[Connection | None] = attrs.field(init=False)
    _take: trio.MemoryReceiveChannel[Connection | None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Fill all slots with connections to be opened on first use."""
        self._put, self._take = trio.open_memory_channel(self.size)
        for _ in range(self.size):
            self._put.send_nowait(None)

    @property
    def idle(self) -> int:
        """Slots nobody is using."""
        return self._take.statistics().current_buffer_used

    async def take(self) -> Connection | None:
        """Wait for a slot."""
        return await self._take.receive()

    def put(self, connection: Connection | None) -> None:
        """Give a slot back; a connection that cannot be used again is closed for good."""
        if connection is not None and (connection.is_closed() or connection.is_in_transaction()):
            connection.terminate()
            connection = None
        self._put.send_nowait(connection)

    def close(self) -> None:
        """Close every idle connection at once."""
        while self.idle:
            connection = self._take.receive_nowait()
            if connection is not None:
                connection.terminate()


@attrs.define
class _Lease:
    """A slot while it is used; the asyncio side puts the connection it opened here."""

    connection: Connection | None

    async def connect(self, connector: Connector) -> Connection:
        """Return the slot's connection, opened if need be (asyncio)."""
        if self.connection is None or self.connection.is_closed():
            self.connection = None
            self.connection = await connector.connect()
        return self.connection

    def drop(self) -> None:
        """Close the connection for good, without asking the server."""
        if self.connection is not None:
            self.connection.terminate()
            self.connection = None


@attrs.define
class Pool:
    """The process's connections to one database.

    Attributes:
        in_flight: units of work, and exchanges of those who listen, now under way.
        statements: units of work begun since the pool was opened.
        now: the time lease statements are told; None (outside tests, always) leaves it to Postgres.
    """

    connector: Connector
    now: Callable[[], datetime | None]
    _loop: trio_asyncio.TrioEventLoop
    _slots: Slots
    _heartbeat: Slots = attrs.field(factory=lambda: Slots(1))
    _listening: list[Notifications] = attrs.field(factory=list)
    in_flight: int = 0
    statements: int = 0

    @property
    def size(self) -> int:
        """Connections this pool may have open for work, the heartbeat's own not counted."""
        return self._slots.size

    @property
    def idle(self) -> int:
        """Connections not in use; equals `size` when nothing is going on."""
        return self._slots.idle

    async def rows(self, query: Query, **values: object) -> Sequence[Row]:
        """Read; may be cancelled.  Tried once more if the connection turns out to be dead.

        Raises:
            StoreUnavailable: no database, or no connection free within `READ_DEADLINE`.
        """
        work = _fetch(query, query.arguments(values))
        return await self._run(self._slots, work, READ_DEADLINE, write=False)

    async def one(self, query: Query, **values: object) -> Row | None:
        """Read the first row, or None when there is none; otherwise as `rows`."""
        rows = await self.rows(query, **values)
        return rows[0] if rows else None

    async def write(
        self, query: Query, *, deadline: float = WRITE_DEADLINE, **values: object
    ) -> Sequence[Row]:
        """Run one writing statement; cancelled before it is sent, or not at all.

        Args:
            query: the statement.
            deadline: seconds it may take, waiting for a connection included.
            values: its arguments.

        Raises:
            StoreUnavailable: no database, or no answer in time: it may have been committed.
        """
        return await self.unit(_fetch(query, query.arguments(values)), deadline=deadline)

    async def unit(self, work: Work[T], *, deadline: float = WRITE_DEADLINE) -> T:
        """Run *work* (asyncio code) on one connection; may hold a transaction.  As `write`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._run(self._slots, work, deadline, write=True)

    async def beat(self, query: Query, *, deadline: float, **values: object) -> Sequence[Row]:
        """Run a heartbeat on the connection kept for it, however busy the others are.  As `write`."""
        work = _fetch(query, query.arguments(values))
        return await self._run(self._heartbeat, work, deadline, write=True)

    async def ping(self, *, deadline: float) -> None:
        """Ask the database whether it is there.

        Args:
            deadline: seconds to wait for its answer.

        Raises:
            StoreUnavailable: it is not, or did not answer in time.
        """
        await self._run(self._slots, _ping, deadline, write=False)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Notifications]:
        """Listen to the doorbell on a connection of its own; see `Notifications`.

        Raises:
            StoreUnavailable: no database.
        """
        async with open_notifications(self._loop, self.connector, self) as rings:
            self._listening.append(rings)
            try:
                yield rings
            finally:
                self._listening.remove(rings)

    async def hear_out(self) -> None:
        """Return when everybody who listens here has been told of all that was rung before.

        For tests that own time: a ring on its way is in no other count.
        """
        for rings in tuple(self._listening):
            with suppress(StoreUnavailable):  # its reader finds out by itself
                await rings.hear_out()

    async def _run(self, slots: Slots, work: Work[T], deadline: float, *, write: bool) -> T:
        """Run *work* in one hop on a slot of *slots*, whatever happens giving the slot back."""
        expiry = trio.current_time() + deadline
        with counted(self), translated():
            with trio.fail_at(expiry):
                lease = _Lease(await slots.take())
            try:
                with trio.fail_at(expiry, shield=write):
                    self.statements += 1
                    hop = trio_asyncio.aio_as_trio(self._unit, loop=self._loop)
                    result: T = await hop(lease, work, once_more=not write)
                    return result
            except trio.TooSlowError:
                lease.drop()  # a backend that hangs would hang the next one, too
                raise
            finally:
                slots.put(lease.connection)

    async def _unit(self, lease: _Lease, work: Work[T], *, once_more: bool) -> T:
        """The asyncio side of `_run`; *once_more* if the connection turns out to be dead."""
        used_before = lease.connection is not None
        connection = await lease.connect(self.connector)
        try:
            return await work(connection)
        except BROKEN:
            lease.drop()
            if not (once_more and used_before):
                raise
        except asyncio.CancelledError:
            # Cut between two messages of one statement, the server goes on holding its locks until
            # the next one comes, and no flag of the connection tells.
            lease.drop()
            raise
        except BaseException:
            if connection.is_in_transaction():
                lease.drop()
            raise
        return await work(await lease.connect(self.connector))

    def _close(self) -> None:
        self._slots.close()
        self._heartbeat.close()


async def execute(connection: Connection, query: Query, **values: object) -> Sequence[Row]:
    """Run one statement of a unit of work (asyncio)."""
    return await connection.fetch(query.sql, *query.arguments(values))


def _fetch(query: Query, arguments: Sequence[object]) -> Work[Sequence[Row]]:
    async def fetch(connection: Connection) -> Sequence[Row]:
        return await connection.fetch(query.sql, *arguments)

    return fetch


async def _ping(connection: Connection) -> None:
    await connection.execute("select 1")


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
        size: connections for work; one more is kept for heartbeats, and one for each `listen`.
        lease_ttl: seconds; statements and locks give up well before a lease could lapse.
        now: the time that lease statements are told, for tests that own time.
    """
    failure: Exception | None = None
    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(note_stray)
        pool = Pool(Connector.to(dsn, lease_ttl), now, loop, Slots(size))
        try:
            yield pool
        except Exception as error:  # noqa: BLE001  # raised again below: the loop would wrap it in groups
            failure = error
        finally:
            pool._close()  # noqa: SLF001  # our own, in this module
            await _let_connections_end()
    if failure is not None:
        raise failure


async def _let_connections_end() -> None:
    """Let asyncio see its closed transports off, so that none is reported as leaked."""
    with trio.CancelScope(shield=True):
        for _ in range(3):
            await trio.lowlevel.checkpoint()
