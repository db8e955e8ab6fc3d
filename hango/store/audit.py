"""What was done in a tenant, for its administrators to read.

Rows are written by the very statements that do what they record, so neither is there without the
other; see ``audit_events`` in ``sql/queries``.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import attrs

from hango.db.pool import Pool
from hango.db.queries import QUERIES
from hango.domain import AuditEvent
from hango.store import rows

LIST_AUDIT_EVENTS = QUERIES["list_audit_events"]


@attrs.define
class Audit:
    """The audit trail; who may read it is the caller's to check."""

    _pool: Pool

    async def list(
        self, tenant_id: UUID, *, before: UUID | None = None, limit: int = 50
    ) -> Sequence[AuditEvent]:
        """Return up to *limit* events older than *before*, newest first."""
        found = await self._pool.rows(
            LIST_AUDIT_EVENTS, tenant_id=tenant_id, before=before, limit=limit
        )
        return [rows.audit_event(row) for row in found]
