"""The audit trail of a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import attrs

from hango.codec import dump_json
from hango.db.pool import Pool
from hango.db.queries import QUERIES
from hango.domain import AuditEvent, JsonObject, User, new_id
from hango.store import rows

LIST_AUDIT_EVENTS = QUERIES["list_audit_events"]
INSERT_AUDIT_EVENT = QUERIES["insert_audit_event"]


@attrs.define
class Audit:
    """The audit trail; who may read it is the caller's to check.

    The statement that does something also records it, so neither is there without the other.  What
    was refused is recorded by itself.
    """

    _pool: Pool

    async def list(
        self, tenant_id: UUID, *, before: UUID | None = None, limit: int = 50
    ) -> Sequence[AuditEvent]:
        """Return up to *limit* events older than *before*, newest first."""
        found = await self._pool.rows(
            LIST_AUDIT_EVENTS, tenant_id=tenant_id, before=before, limit=limit
        )
        return [rows.audit_event(row) for row in found]

    async def record(
        self, user: User, action: str, target_kind: str, target_id: UUID, detail: JsonObject
    ) -> None:
        """Record something that *user* wanted to do and that was refused."""
        await self._pool.write(
            INSERT_AUDIT_EVENT,
            audit_id=new_id(),
            tenant_id=user.tenant_id,
            actor_id=user.id,
            action=action,
            target_kind=target_kind,
            target_id=target_id,
            detail=dump_json(detail),
        )
