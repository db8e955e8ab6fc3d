"""What the errors of asyncpg and of the system mean: one table, for pool, listener and migrations.

A class of SQLSTATE that says something of the server, and nothing of the statement, is
`StoreUnavailable`: the same statement may succeed later.  What speaks of the statement or its data is
raised as it is, but for a unique key, which is an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import asyncpg
import trio

from hango.errors import NotWritable, StoreError, StoreUnavailable, UniqueViolation
from hango.safe_errors import format_frames

_log = logging.getLogger(__name__)

BROKEN = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,  # to a standby: the primary is elsewhere now
)
"""What a connection raises that is of no further use."""

# https://www.postgresql.org/docs/current/errcodes-appendix.html
AWAY = (
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
"""What is raised when the database is away, too slow, or will not work now."""

READ_ONLY = (
    "the database takes no writes now: it is a standby, or read-only (default_transaction_read_only)"
)
_DISK_FULL = "the database takes no writes now: its disk is full"


def translate(error: Exception) -> StoreError | None:
    """Return the error of hango's that *error* stands for; None if it is a fault of ours."""
    match error:
        case asyncpg.ReadOnlySQLTransactionError():
            return NotWritable(READ_ONLY)
        case asyncpg.DiskFullError():
            return NotWritable(_DISK_FULL)
        case asyncpg.UniqueViolationError():
            return UniqueViolation(error.constraint_name or "")
        case _ if isinstance(error, AWAY):
            return StoreUnavailable(f"the database is not available ({type(error).__name__})")
        case _:
            return None


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise what hango calls the errors of the database."""
    try:
        yield
    except Exception as error:
        if (translated := translate(error)) is None:
            raise
        raise translated from error


def log_unhandled_asyncio_error(_: object, context: Mapping[str, object]) -> None:
    """Log an error that no task of asyncio waits for; the loop, and all connections, go on.

    asyncpg leaves some behind when it is cut while it connects over TCP.  By default trio-asyncio
    would end the loop.  Whoever waits for an answer has a deadline.
    """
    error = context.get("exception")
    told = format_frames(error) if isinstance(error, BaseException) else "no exception"
    level = logging.INFO if isinstance(error, (*BROKEN, asyncio.CancelledError)) else logging.ERROR
    _log.log(level, "asyncio: %s (%s)", context.get("message"), told)
