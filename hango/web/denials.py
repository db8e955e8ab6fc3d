"""Refused keys and denied operations: logged, and audited where the tenant is known.

Rule: both are bounded, so that an attack leaves a trace and no flood of them.  What is left out is
counted in the next line or event.  Keys, paths and headers are never logged: a client writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from contextlib import suppress
from uuid import UUID

import attrs
import trio
from quart import request

from hango.domain import JsonObject, User
from hango.errors import StoreUnavailable
from hango.store.accounts import KeyUse
from hango.store.audit import Audit

LINE_INTERVAL = 1.0  # seconds between two log lines of one kind
EVENT_INTERVAL = 60.0  # seconds between two audit events of one user and kind
_MAX_KEYS = 1000  # users remembered at once; of one that was forgotten an event more may be stored

_log = logging.getLogger("hango.web")


@attrs.define
class Throttle:
    """Lets something happen once in *interval* seconds (trio clock) for each key."""

    interval: float
    # by key, oldest first: when it last happened, and how often it was held back since
    _last: dict[Hashable, tuple[float, int]] = attrs.field(factory=dict, init=False)

    def take(self, key: Hashable) -> int | None:
        """Return how often *key* was held back since it last happened; None: hold it back now."""
        now = trio.current_time()
        last, held = self._last.pop(key, (-self.interval, 0))
        if now - last < self.interval:
            self._last[key] = (last, held + 1)
            return None
        self._last[key] = (now, 0)
        if len(self._last) > _MAX_KEYS:
            del self._last[next(iter(self._last))]
        return held


@attrs.define
class Denials:
    """Records what was refused."""

    _audit: Audit
    _lines: Throttle = attrs.field(factory=lambda: Throttle(LINE_INTERVAL), init=False)
    _events: Throttle = attrs.field(factory=lambda: Throttle(EVENT_INTERVAL), init=False)

    async def refused_key(self, reason: str, use: KeyUse | None = None) -> None:
        """Record that a key was refused; *use* is None where it is no key of anybody's."""
        self._line("a key was refused (%s)", f"{reason}, user {use.user.id}" if use else reason)
        if use is not None:
            await self._event(use.user, "key.refuse", "key", use.key_id, {"reason": reason})

    async def denied(self, user: User) -> None:
        """Record that *user* may not do what this request asks for."""
        self._line("access was denied (%s)", f"{user.role}, user {user.id}")
        operation = request.endpoint.rpartition(".")[2] if request.endpoint else ""
        await self._event(user, "access.deny", "user", user.id, {"operation": operation})

    def _line(self, text: str, detail: str) -> None:
        held = self._lines.take(text)
        if held is not None:
            more = f"; {held} more since the last such line" if held else ""
            _log.warning(text + ", from %s%s", detail, request.remote_addr or "a Unix socket", more)

    async def _event(
        self, user: User, action: str, target_kind: str, target_id: UUID, detail: JsonObject
    ) -> None:
        held = self._events.take((user.id, action))
        if held is not None:
            more = {"not_recorded_before": held} if held else {}
            with suppress(StoreUnavailable):  # the refusal stands without its record, too
                await self._audit.record(user, action, target_kind, target_id, {**detail, **more})
