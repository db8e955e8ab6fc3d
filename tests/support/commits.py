"""The commits of a process's executions, numbered, by standing in the store's one bridge.

Its one rule: a statement counts if it changed something, which is known when it has run and before it
is committed; one that found nothing to claim, nothing lapsed, or its fence closed, has no number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import attrs
import pytest

from hango.db.connections import Connection, Urgency
from hango.db.pool import DEADLINE, Pool
from hango.db.queries import Query, Row
from hango.errors import StoreUnavailable

Side: TypeAlias = Literal["before", "after"]
SIDES: tuple[Side, ...] = ("before", "after")
Rows: TypeAlias = Sequence[Row]
Work: TypeAlias = Callable[[Connection], Awaitable[Rows]]
Hop: TypeAlias = Callable[[Work], Awaitable[Rows]]
"""Runs a unit of work on a connection of the pool's."""

_OF_ITEMS = {"append_messages", "end_turn", "settle_run", "release_run"}
_OF_OTHERS = {"cancel_run", "insert_run"}  # written for whoever asks for it, not by an execution


@attrs.frozen
class Statement:
    """A writing statement and its arguments."""

    query: Query
    arguments: tuple[object, ...]

    @property
    def name(self) -> str:
        """The name it has in the store."""
        return self.query.name

    async def run(self, connection: Connection) -> Rows:
        """Run it (asyncio)."""
        return await connection.fetch(self.query.sql, *self.arguments)

    def changes(self, rows: Rows) -> bool:
        """Tell whether it changed something of a run, by what it answered.

        A renewal counts if it is the one that hears of a cancel: when the others happen is chance.
        """
        match self.name:
            case "claim_next_run":
                return bool(rows) and rows[0]["id"] is not None
            case "renew_leases":
                return any(row["renewed"] and row["cancelled"] for row in rows)
            case name if name in _OF_ITEMS:
                return any(not row["locked"] for row in rows)
            case name:
                return bool(rows) and name not in _OF_OTHERS


@attrs.frozen
class Commit:
    """A statement that changed something; *number* from 1, in the order of the process."""

    number: int
    name: str


@attrs.define
class CommitCounter:
    """Sends statements as they are, and numbers those that change something.

    Attributes:
        at: told of each commit twice: before, when it has run and is not committed (what is raised
            there rolls it back), and after, when it is committed and its executor does not know.
        cut_off: names of statements that never reach the database.
        count: how many there have been.
    """

    at: Callable[[Commit, Side], None]
    cut_off: frozenset[str] = frozenset()
    count: int = 0
    _heard: bool = False

    async def send(self, statement: Statement, hop: Hop) -> Rows:
        """Send *statement*."""
        if statement.name in self.cut_off:
            raise StoreUnavailable("cut off")
        return await hop(self.work(statement))

    def work(self, statement: Statement) -> Work:
        """Return *statement* as a unit of work, in a transaction whose ends can be told."""

        async def unit(connection: Connection) -> Rows:
            async with connection.transaction():
                rows = await statement.run(connection)
                commit = self._commit(statement, rows)
                if commit is not None:
                    self.at(commit, "before")
            if commit is not None:
                self.at(commit, "after")
            return rows

        return unit

    def _commit(self, statement: Statement, rows: Rows) -> Commit | None:
        if not statement.changes(rows):
            return None
        if statement.name == "renew_leases":
            if self._heard:
                return None
            self._heard = True
        self.count += 1
        return Commit(self.count, statement.name)


class Sender(Protocol):
    """Sends a statement over the bridge."""

    async def __call__(self, statement: Statement, hop: Hop) -> Rows:
        """Send *statement* by *hop*, and return its rows."""
        ...


def intercept_writes(patch: pytest.MonkeyPatch, pool: Pool, send: Sender) -> None:
    """Have *send* send all that is written over *pool*, heartbeats included."""
    write, beat = Pool.write, Pool.heartbeat_write

    async def own_write(
        asked: Pool, query: Query, *, deadline: float = DEADLINE, **values: object
    ) -> Rows:
        if asked._connections is not pool._connections:
            return await write(asked, query, deadline=deadline, **values)

        async def hop(work: Work) -> Rows:
            return await asked.unit(work, deadline=deadline)

        return await send(Statement(query, query.arguments(values)), hop)

    async def own_beat(asked: Pool, query: Query, *, deadline: float, **values: object) -> Rows:
        if asked._connections is not pool._connections:
            return await beat(asked, query, deadline=deadline, **values)

        async def hop(work: Work) -> Rows:
            return await asked._run(work, deadline, write=True, urgency=Urgency.HEARTBEAT)

        return await send(Statement(query, query.arguments(values)), hop)

    patch.setattr(Pool, "write", own_write)
    patch.setattr(Pool, "heartbeat_write", own_beat)
