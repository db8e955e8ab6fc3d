"""What the database's answers say of its health; for readiness and for the log."""

from __future__ import annotations

import logging
import math
import time

import asyncpg
import attrs

from hango.db.connections import Connection
from hango.db.failures import READ_ONLY
from hango.errors import NotWritable, StoreError

_REMEMBER = (
    30.0  # seconds after a refused write in which nothing else shows whether it would be taken now
)
_SAY_EVERY = 10.0  # seconds

_IS_READ_ONLY = "select pg_is_in_recovery() or current_setting('transaction_read_only')::bool"

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Writability:
    """Remembers why a write was refused, until one is taken; logs both."""

    _refusal: str = attrs.field(default="", init=False)
    _refused_at: float = attrs.field(default=-math.inf, init=False)  # monotonic clock, seconds

    def note(self, error: StoreError) -> None:
        """Take note of an error, if it says that no writes are taken."""
        if isinstance(error, NotWritable):
            if not self._refusal:
                _log.warning("%s; runs wait until it does", error)
            self._refusal, self._refused_at = str(error), time.monotonic()

    def written(self) -> None:
        """Take note of a write that changed something."""
        if self._refusal:
            self._refusal = ""
            _log.warning("the database takes writes again")

    def check(self) -> None:
        """Return if writes are taken, as far as is known; the database is not read-only.

        Raises:
            NotWritable: its disk was full a moment ago, and no write has been taken since.
        """
        if self._refusal == READ_ONLY or time.monotonic() > self._refused_at + _REMEMBER:
            self.written()
        if self._refusal:
            raise NotWritable(self._refusal)


@attrs.define(eq=False)
class RepeatedWork:
    """Logs that executors send something again, in one line for many."""

    _count: int = attrs.field(default=0, init=False)
    _said_at: float = attrs.field(default=-math.inf, init=False)  # monotonic clock, seconds

    def note(self, error: StoreError) -> None:
        """Take note that something is sent again, because of *error*."""
        self._count += 1
        if time.monotonic() > self._said_at + _SAY_EVERY:
            _log.warning("%d statements of runs had to be sent again; the last: %s", self._count, error)
            self._count, self._said_at = 0, time.monotonic()


async def refuse_read_only(connection: Connection) -> None:
    """Fail as a write would, if the database takes none (asyncio)."""
    if await connection.fetchval(_IS_READ_ONLY):
        raise asyncpg.ReadOnlySQLTransactionError("it is a standby, or read-only")
