"""How a connection is made, and what its failures mean.

Every connection gives up on locks, statements and idle transactions well before a third of a lease,
so that nobody who froze in the database can make a whole process lose its leases.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import asyncpg
import attrs
import trio

from hango.errors import StoreUnavailable
from hango.safe_errors import format_frames

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 5.0  # seconds; a database that is there answers in milliseconds
_SHARE_OF_LEASE = 0.25  # of the ttl: below a third, as heartbeats come every third
_LONGEST = 20.0  # seconds; long leases are no reason to let statements hang

BROKEN = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.ReadOnlySQLTransactionError,  # to a standby: the primary is elsewhere now
)
"""What a connection raises that is of no further use."""

# By class of SQLSTATE where all of a class says something of the server, and nothing of the statement:
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_AWAY = (
    *BROKEN,
    TimeoutError,
    trio.TooSlowError,
    asyncpg.InsufficientResourcesError,  # 53: connections, memory, disk
    asyncpg.OperatorInterventionError,  # 57: shut down, starting up, cancelled, dropped
    asyncpg.PostgresSystemError,  # 58: its own input and output
    asyncpg.TransactionRollbackError,  # 40: deadlock, failed serialization
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCachedStatementError,
)


@attrs.frozen
class Connector:
    """Makes connections to one database.

    Attributes:
        dsn: kept out of every text, since it may hold a password.
        settings: what each connection sets on the server's side.
    """

    dsn: str = attrs.field(repr=False)
    settings: Mapping[str, str]

    @classmethod
    def to(cls, dsn: str, lease_ttl: float) -> Connector:
        """Make a connector whose patience fits leases of *lease_ttl* seconds."""
        milliseconds = str(max(int(min(lease_ttl * _SHARE_OF_LEASE, _LONGEST) * 1000), 1))
        return cls(
            dsn,
            {
                "application_name": "hango",
                "lock_timeout": milliseconds,
                "statement_timeout": milliseconds,
                "idle_in_transaction_session_timeout": milliseconds,
            },
        )

    async def connect(self) -> Connection:
        """Connect (asyncio); raises what asyncpg and the system raise.

        Raises:
            StoreUnavailable: the server refuses: the database is closed for maintenance, renamed, or
                the password has changed.  It had let us in before, and may again.
        """
        try:
            return await asyncpg.connect(
                self.dsn, timeout=CONNECT_TIMEOUT, server_settings=dict(self.settings)
            )
        except asyncpg.PostgresError as error:
            kind = type(error).__name__
            raise StoreUnavailable(f"the database refuses connections ({kind})") from error


def note_stray(_: object, context: Mapping[str, object]) -> None:
    """Log an error that asyncio has nobody to tell; its loop, and all connections, go on.

    asyncpg leaves some behind when it is cut while it connects over TCP.  Left to its default,
    trio-asyncio would end the loop for it.  Whoever waits for an answer has a deadline.
    """
    error = context.get("exception")
    told = format_frames(error) if isinstance(error, BaseException) else "no exception"
    level = logging.INFO if isinstance(error, BROKEN) else logging.ERROR
    _log.log(level, "asyncio: %s (%s)", context.get("message"), told)


class Traffic(Protocol):
    """Where it is counted how much is under way between this process and the database."""

    in_flight: int


@contextmanager
def counted(traffic: Traffic) -> Iterator[None]:
    """Count what is done in the context as under way."""
    traffic.in_flight += 1
    try:
        yield
    finally:
        traffic.in_flight -= 1


@contextmanager
def translated() -> Iterator[None]:
    """Turn every way in which a database can be away, or too slow, into `StoreUnavailable`."""
    try:
        yield
    except _AWAY as error:
        kind = type(error).__name__
        raise StoreUnavailable(f"the database is not available ({kind})") from error
