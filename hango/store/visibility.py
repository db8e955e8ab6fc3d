"""The parameters of the one predicate of visibility, the SQL function ``visible``.

What a user may not see is answered exactly as what does not exist.
"""

from __future__ import annotations

from typing import TypedDict
from uuid import UUID

from hango.domain import Scope


class Visibility(TypedDict):
    """What ``visible`` is asked about."""

    tenant_id: UUID
    user_id: UUID
    sees_all: bool


def visibility(scope: Scope) -> Visibility:
    """Return what *scope* may see: a member what they created, others all of their tenant."""
    return {
        "tenant_id": scope.tenant_id,
        "user_id": scope.user_id,
        "sees_all": scope.role.administers,
    }
