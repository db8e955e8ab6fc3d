"""The access log: a line and a metric for each request, and its id.

Rule: a line has the route and not the path, so that nothing a client has written is logged but a
request id in a bounded form.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID, uuid4

import attrs

from hango.domain import User
from hango.telemetry import metrics, names

REQUEST_ID = b"x-request-id"

_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})
_UNMATCHED = "_unmatched"  # the route of a request for nothing there is
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # asked all the time, so logged at DEBUG

_log = logging.getLogger("hango.access")


@attrs.define
class Access:
    """One request.

    Attributes:
        request_id: as the client or a proxy gave it, else drawn here.
        route: the path as it is declared; found by the application.
        status: 0 until it is answered.
        user: whose key the request has; None before that is known.
    """

    method: str
    request_id: str
    route: str = _UNMATCHED
    status: int = 0
    user: User | None = None
    _started: float = attrs.field(factory=time.perf_counter, init=False)

    def record(self) -> None:
        """Log and count the request, which is over."""
        seconds = time.perf_counter() - self._started
        method = self.method if self.method in _METHODS else names.OTHER
        labels = {names.HTTP_METHOD: method, names.HTTP_ROUTE: self.route}
        metrics.http_duration.record(seconds, {**labels, names.HTTP_STATUS: self.status})
        user_id: UUID | None = self.user.id if self.user else None
        fields: dict[str, object] = {
            **labels,
            names.HTTP_STATUS: self.status,
            "http.request.id": self.request_id,
            "hango.milliseconds": round(seconds * 1000, 1),
        }
        if self.user is not None:
            fields |= {"user.id": str(user_id), names.TENANT_ID: str(self.user.tenant_id)}
        _log.log(
            logging.DEBUG if self.route in _PROBES else logging.INFO,
            "%s %s %s, %.1f ms, user %s, request %s",
            method,
            self.route,
            self.status or "not answered",
            seconds * 1000,
            user_id or "-",
            self.request_id,
            extra=fields,
        )


_current: ContextVar[Access | None] = ContextVar("hango.access", default=None)


@contextmanager
def recorded(method: str, given_id: bytes) -> Iterator[Access]:
    """Have a request recorded when the block is left, whatever ends it.

    Args:
        method: of the request.
        given_id: the request id it came with; one that is empty or has odd characters is replaced.
    """
    known = given_id.decode() if _GIVEN_ID.fullmatch(given_id) else uuid4().hex
    access = Access(method, known)
    token = _current.set(access)
    try:
        yield access
    finally:
        _current.reset(token)
        access.record()


def current() -> Access | None:
    """Return the request that this task answers; None where none is recorded."""
    return _current.get()
