"""Where a server listens, and when the network to it counts as gone."""

from __future__ import annotations

import attrs


@attrs.frozen
class Endpoint:
    """One place where a server may listen.

    Attributes:
        host: name or address; a folder, beginning with ``/``, for a Unix socket.
    """

    host: str
    port: int

    @property
    def is_socket(self) -> bool:
        """Whether it is a Unix socket."""
        return self.host.startswith("/")

    def __str__(self) -> str:
        """Write it as in a URL."""
        if self.is_socket:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class Keepalive:
    """When a silent network counts as gone; seconds.

    Attributes:
        idle: silence after which the other side is asked; 0 for the system's own settings.
        interval, count: how often it is asked, and how many times without an answer.
        user_timeout: how long what was sent may stay unacknowledged.
    """

    idle: int = 30
    interval: int = 10
    count: int = 3
    user_timeout: float = 10.0
