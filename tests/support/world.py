"""The small populated database that tests begin in, as users of hango have it."""

from __future__ import annotations

from hango.testing.databases import sql
from hango.testing.seeded_tenant import World, make_world, scope_of

__all__ = ["World", "make_world", "scope_of", "sql"]
