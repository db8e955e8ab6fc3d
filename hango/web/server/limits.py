"""How many connections there may be, how long a client may take, how often faults are logged."""

from __future__ import annotations

import ipaddress
import logging
import math
from collections import Counter
from typing import Protocol

import attrs
import trio


@attrs.frozen
class ConnectionLimits:
    """How long a client may take, in seconds, and how many connections there may be.

    Attributes:
        keep_alive: between two requests, and before the first; as nginx has it, and longer than the 60
            seconds after which clients and load balancers commonly close, so that they are the ones to.
        head: from the first byte of a request to the end of its header fields.
        stall: in which a reader must take a piece of an answer (`http1.CHUNK`); as long as a phone
            needs to change networks.
        linger: in which a client can read its last answer before the socket is gone.
        connections: open at once in this process.
        per_peer: of them, from one address (of IPv6, from one /64).
    """

    keep_alive: float = 75.0
    head: float = 30.0
    stall: float = 15.0
    linger: float = 2.0
    connections: int = 800
    per_peer: int = 400


class _Connection(Protocol):
    """An open connection.

    Attributes:
        unused: whether no request is received or answered.
    """

    unused: bool

    def end(self) -> None:
        """Close it."""


class OpenConnections:
    """The connections of a server, their peers, and which of them are unused."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._peers: dict[_Connection, str] = {}
        self._per_peer: Counter[str] = Counter()
        self._unused: dict[_Connection, None] = {}  # longest unused first

    def add(self, connection: _Connection, peer: str) -> None:
        """Count a new connection; *peer* is empty where there are no addresses."""
        self._peers[connection] = peer
        self._per_peer[peer] += 1
        self._unused[connection] = None

    def remove(self, connection: _Connection) -> None:
        """Forget a connection; nothing if it was forgotten before."""
        peer = self._peers.pop(connection, None)
        if peer is not None:
            self._unused.pop(connection, None)
            self._per_peer[peer] -= 1
            if not self._per_peer[peer]:
                del self._per_peer[peer]

    def note_use(self, connection: _Connection) -> None:
        """Note that *connection* has become used, or unused."""
        self._unused.pop(connection, None)
        if connection.unused and connection in self._peers:
            self._unused[connection] = None

    def make_room(self, peer: str) -> bool:
        """Return whether *peer* may have another connection; closes an unused one if need be."""
        if peer and self._per_peer[peer] >= self._limits.per_peer:
            return self.end_one(peer)
        return len(self._peers) < self._limits.connections or self.end_one()

    def end_one(self, peer: str = "") -> bool:
        """Close what is unused for longest, of *peer* if given; return whether there was anything."""
        found = next((it for it in self._unused if not peer or self._peers[it] == peer), None)
        if found is not None:
            found.end()
            self.remove(found)
        return found is not None


def peer_of(address: object) -> str:
    """Return what counts as one peer: an IPv4 address, a /64 of IPv6, or empty for a Unix socket."""
    if not isinstance(address, tuple):
        return ""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(host, ipaddress.IPv6Address):
        if host.ipv4_mapped is None:
            return str(ipaddress.ip_network((host, 64), strict=False))
        host = host.ipv4_mapped
    return str(host)


class RareLog:
    """A log that says the first of what happens often: `LINES` warnings in `WINDOW` seconds."""

    LINES = 5
    WINDOW = 60.0

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since = -math.inf
        self._count = 0

    def log(self, message: str, *values: object) -> None:
        """Log a warning, or count it until the window is over."""
        now = trio.current_time()
        if now - self._since >= self.WINDOW:
            if self._count > self.LINES:
                self._log.warning("%d more lines like the last were left out", self._count - self.LINES)
            self._since, self._count = now, 0
        self._count += 1
        if self._count <= self.LINES:
            self._log.warning(message, *values)
