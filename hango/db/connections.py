"""How a connection is made: where, with which settings, and what the network does when it falls silent.

Every connection gives up on locks, statements and idle transactions well before a third of a lease, and
before its client does, so that nothing is left waiting in the server for a client that has gone.
"""

from __future__ import annotations

import enum
import socket
from asyncio import BaseTransport
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias
from urllib.parse import urlencode

import asyncpg
import attrs

from hango.db.url import DatabaseUrl
from hango.db.url.endpoints import Endpoint, Keepalive
from hango.db.url.tls import SYSTEM, system_context
from hango.errors import ConfigError, NotSent

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

STATEMENT_DEADLINE = 10.0
"""Seconds after which the client gives up on a statement; the server does before."""

CONNECT_TIMEOUT = 5.0  # seconds; a database that is there answers in milliseconds
_CONNECT_TIMEOUT_OF_SEVERAL = 2.5  # seconds, for each: the primary may be the last of them
_SHARE_OF_LEASE = 0.25  # of the ttl: below a third, as heartbeats come every third
_SERVER_TIMEOUT = 8.0  # seconds, at most: below STATEMENT_DEADLINE
_CLIENT_CHECK = (
    2.0  # seconds after which a server that works or waits looks whether its client is there
)
_MILLISECONDS = 1000

# Not every platform that Postgres runs on can do these.
_OPTIONAL = (
    "client_connection_check_interval",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_keepalives_count",
)


class Urgency(enum.IntEnum):
    """Whose work goes first."""

    HEARTBEAT = 0
    EXECUTOR = 1
    OTHER = 2


@attrs.define(eq=False)
class PooledConnection:
    """A connection, and what is known of it.

    Attributes:
        answered_at: when the server answered last (monotonic clock, seconds).
        sent_at: when what it works on now was sent; the same clock.
        silent_since: as *sent_at*, or when the server was last asked whether it works on it.
        urgency: whose work it does now.
    """

    connection: Connection
    answered_at: float
    sent_at: float = 0.0
    silent_since: float = 0.0
    urgency: Urgency = Urgency.OTHER

    @property
    def usable(self) -> bool:
        """Whether another statement can be sent over it."""
        return not (self.connection.is_closed() or self.connection.is_in_transaction())


@attrs.define
class Traffic:
    """What is under way between this process and the database; for tests that own time.

    Attributes:
        in_flight: units of work, and other exchanges, now.
        statements: units of work begun so far.
    """

    in_flight: int = 0
    statements: int = 0

    @contextmanager
    def track(self) -> Iterator[None]:
        """Count what is done in the context as under way."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


def session_settings(lease_ttl: float) -> dict[str, str]:
    """Return what each connection sets in the server, for leases of *lease_ttl* seconds.

    Rule: what hango relies on is pinned; an operator's defaults for other programs do not reach it.
    """
    timeout = str(max(int(min(lease_ttl * _SHARE_OF_LEASE, _SERVER_TIMEOUT) * _MILLISECONDS), 1))
    keepalive = Keepalive()
    return {
        "lock_timeout": timeout,
        "statement_timeout": timeout,
        "idle_in_transaction_session_timeout": timeout,
        "idle_session_timeout": "0",  # who listens is silent for long
        # "Lock, then count" needs a snapshot for each statement.
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        # What was answered is on disk; else a crash undoes a turn that was acknowledged.
        "synchronous_commit": "on",
        "client_connection_check_interval": str(int(_CLIENT_CHECK * _MILLISECONDS)),
        "tcp_keepalives_idle": str(keepalive.idle),
        "tcp_keepalives_interval": str(keepalive.interval),
        "tcp_keepalives_count": str(keepalive.count),
    }


@attrs.define(eq=False)
class Connector:
    """Makes connections to one database.

    Attributes:
        dsn: kept out of every text, since it may hold a password.
        settings: what each connection sets in the server.
        url: *dsn*, as read.
    """

    dsn: str = attrs.field(repr=False)
    settings: Mapping[str, str]
    url: DatabaseUrl = attrs.field(init=False)
    _endpoint: int = attrs.field(default=0, init=False)  # of the last server that would do

    @url.default
    def _read(self) -> DatabaseUrl:
        try:
            return DatabaseUrl.parse(self.dsn)
        except ConfigError as error:
            problems = tuple(f"the database URL: {problem}" for problem in error.problems)
            raise ConfigError(problems) from None

    @classmethod
    def to(cls, dsn: str, lease_ttl: float) -> Connector:
        """Make a connector whose timeouts fit leases of *lease_ttl* seconds.

        Raises:
            ConfigError: *dsn* cannot be used.
        """
        connector = cls(dsn, session_settings(lease_ttl))
        name = {"application_name": connector.url.application_name}
        return attrs.evolve(connector, settings={**name, **connector.settings})

    @property
    def last_endpoint(self) -> Endpoint:
        """Where the last server was that would do."""
        return self.url.endpoints[self._endpoint]

    async def connect(self) -> Connection:
        """Connect to the first server that will do, beginning with the one that did last (asyncio).

        Raises:
            NotSent: none will; the message says why, in the servers' own words.
        """
        count = len(self.url.endpoints)
        failures = []
        for number in range(self._endpoint, self._endpoint + count):
            endpoint = self.url.endpoints[number % count]
            try:
                connection = await self._connect_to(endpoint)
            except Exception as error:  # noqa: BLE001 - the border: a driver, a network, a server
                failures.append((endpoint, error))
                continue
            self._endpoint = number % count
            return connection
        raise NotSent(_describe(failures)) from failures[-1][1]

    async def _connect_to(self, endpoint: Endpoint) -> Connection:
        """Connect to *endpoint*, if it will do."""
        try:
            connection = await self._open(endpoint, self.settings)
        except asyncpg.InvalidParameterValueError:
            usual = {name: value for name, value in self.settings.items() if name not in _OPTIONAL}
            connection = await self._open(endpoint, usual)
        if self.url.primary and not takes_writes(connection):
            connection.terminate()
            raise asyncpg.ReadOnlySQLTransactionError("it is a standby, or read-only")
        if not endpoint.is_socket:
            _keep_alive(connection, self.url.keepalive)
        return connection

    async def _open(self, endpoint: Endpoint, settings: Mapping[str, str]) -> Connection:
        url = self.url
        options = {"options": url.options} if url.options else {}
        several = len(url.endpoints) > 1
        timeout = url.connect_timeout or (_CONNECT_TIMEOUT_OF_SEVERAL if several else CONNECT_TIMEOUT)
        # All of them, so that asyncpg finds nothing to take from the environment.
        rest = {"target_session_attrs": "any", **url.tls, **url.kerberos}
        system = rest.get("sslrootcert") == SYSTEM
        return await asyncpg.connect(
            f"postgresql://?{urlencode(rest)}",
            ssl=system_context(url.tls) if system else None,
            host=endpoint.host,
            port=endpoint.port,
            user=url.user,
            password=url.password,
            database=url.database,
            timeout=timeout,
            server_settings={**options, **settings},
        )


def takes_writes(connection: Connection) -> bool:
    """Tell whether a server takes writes, by what it reports unasked."""
    reported = connection.get_settings()
    names = ("in_hot_standby", "default_transaction_read_only")
    return all(getattr(reported, name, "off") != "on" for name in names)


def _keep_alive(connection: Connection, keepalive: Keepalive) -> None:
    """Let the system notice when the other side has gone, rather than whoever waits for an answer."""
    if not keepalive.idle:
        return
    transport: BaseTransport = getattr(connection, "_transport")  # noqa: B009 - has no public name
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", keepalive.idle),
        ("TCP_KEEPINTVL", keepalive.interval),
        ("TCP_KEEPCNT", keepalive.count),
        ("TCP_USER_TIMEOUT", int(keepalive.user_timeout * _MILLISECONDS)),
    ):
        if hasattr(socket, name):  # not everywhere
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _describe(failures: list[tuple[Endpoint, Exception]]) -> str:
    return "; ".join(f"the database at {endpoint} {_reason(error)}" for endpoint, error in failures)


def _reason(error: Exception) -> str:
    """Say why a server will not do: in its own words, which hold no password."""
    match error:
        case asyncpg.PostgresError():
            return f"refuses connections: {error.args[0]}"
        case TimeoutError():
            return "cannot be reached: no answer in time"
        case OSError():
            return f"cannot be reached: {error.strerror or error}"
        case _:
            return f"cannot be reached ({type(error).__name__})"
