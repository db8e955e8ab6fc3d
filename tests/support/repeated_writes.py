"""A write that is sent twice, since the answer to the first never comes.

Its one rule: the store itself finds that out and sends it again; nothing here does.
"""

from __future__ import annotations

from enum import StrEnum

import asyncpg
import attrs
import trio
import trio_asyncio

from hango.db.connections import Connection
from hango.db.pool import Pool

from support.commits import Commit, CommitCounter, Hop, Rows, Side, Statement, Work
from support.locks import until_waiting


class LostReply(StrEnum):
    """When a write whose answer is lost is committed."""

    COMMITTED = "committed"  # before it is sent again
    LIVE = "live"  # while its repeat, on another connection, waits for it; or after that found nothing
    LATE = "late"  # after its repeat, as if it had been held up on its way to the database


class _RollBack(Exception):
    """Rolls a statement back, to be run where it can outlive its caller."""


@attrs.define
class RepeatedWrites:
    """Sends statements; the answer to one of them is lost.

    Attributes:
        pool: over which they are sent.
        watching: another pool, on the same database.
        number: of the commit whose answer is lost.
        name: of that commit, once it is.
        waited: the repeat had to wait for it.
    """

    pool: Pool
    watching: Pool
    number: int
    lost: LostReply
    name: str | None = None
    waited: bool = False
    numbered: CommitCounter = attrs.field(init=False)
    _live: Connection | None = None
    _late: Statement | None = None

    def __attrs_post_init__(self) -> None:
        """Number what is sent."""
        self.numbered = CommitCounter(self._at)

    def _at(self, commit: Commit, side: Side) -> None:
        if commit.number != self.number:
            return
        self.name = commit.name
        if side == "after":
            raise asyncpg.ConnectionDoesNotExistError("the answer was lost")
        if self.lost is not LostReply.COMMITTED:
            raise _RollBack

    async def send(self, statement: Statement, hop: Hop) -> Rows:
        """Send *statement*; if it repeats the lost one, that one is committed now, or afterwards."""
        if self._live is not None and statement.name == self.name:
            return await self._while_the_first_lands(statement, hop)
        rows = await hop(self._work(statement))
        if self._late is not None and statement.name == self.name:
            late, self._late = self._late, None
            await hop(late.run)
        return rows

    def _work(self, statement: Statement) -> Work:
        work = self.numbered.work(statement)

        async def unit(connection: Connection) -> Rows:
            try:
                return await work(connection)
            except _RollBack:
                await self._take(statement)
                raise asyncpg.ConnectionDoesNotExistError("the answer was lost") from None

        return unit

    async def _take(self, statement: Statement) -> None:
        """Keep *statement* from its caller; a live one has run, and holds its locks (asyncio)."""
        if self.lost is LostReply.LATE:
            self._late = statement
            return
        self._live = await self.pool.connector.connect()
        await self._live.execute("begin")
        await statement.run(self._live)

    async def _while_the_first_lands(self, statement: Statement, hop: Hop) -> Rows:
        """Send *statement*, and commit the first as soon as this waits for it, or has not had to."""
        error: Exception | None = None
        rows: Rows = ()

        async def land_when_waited_for() -> None:
            await until_waiting(self.watching)
            self.waited = True
            await self.land()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(land_when_waited_for)
            try:
                rows = await hop(self._work(statement))
            except Exception as caught:  # noqa: BLE001 - the caller's, but not in a group
                error = caught
            nursery.cancel_scope.cancel()
        await self.land()
        if error is not None:
            raise error
        return rows

    async def land(self) -> None:
        """Commit the first, if it is still live."""
        if self._live is None:
            return
        connection, self._live = self._live, None
        with trio.CancelScope(shield=True):
            await trio_asyncio.aio_as_trio(connection.execute, loop=self.pool._loop)("commit")
            connection.terminate()
