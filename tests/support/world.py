"""The small populated database that tests begin in, as users of hango have it."""

from __future__ import annotations

from hango.testing.databases import sql
from hango.testing.seeded_tenant import SeededTenant, make_seeded_tenant, scope_of

__all__ = ["SeededTenant", "make_seeded_tenant", "scope_of", "sql"]
