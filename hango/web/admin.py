"""``/v1/users``, their keys, and ``/v1/audit-events``: what an admin or owner does for the tenant.

Rule: a member gets the same 403 whatever is asked for; only then is it looked at.  What would make an
admin an owner, an owner's account or an owner's key, is an owner's to do.  Only `hango.web` uses it.
"""

from __future__ import annotations

import re

import attrs
from quart import Blueprint, Response, request

from hango.domain import Role, User, UserStatus
from hango.errors import InvalidInput
from hango.store.accounts import Accounts
from hango.store.audit import Audit
from hango.web.auth import administrator
from hango.web.problem import FORBIDDEN, Refused
from hango.web.shapes import audit_event_to_json, key_to_json, new_key_to_json, user_to_json
from hango.web.wire import (
    Fields,
    answer,
    nothing,
    page_to_json,
    read_fields,
    read_id,
    read_id_cursor,
    read_limit,
    read_nothing,
)

# https://www.rfc-editor.org/errata/eid1690: what fits into SMTP's path
LONGEST_EMAIL = 254  # characters
# A mistyped address, not a wrong one: who has it is only known to whoever sends mail there.
_EMAIL = re.compile(r"[^@\s\ufffd]+@[^@\s\ufffd]+")


@attrs.frozen
class UserRoutes:
    """The routes of users and their keys."""

    accounts: Accounts

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("users", __name__)
        routes.post("/users")(self.create)
        routes.get("/users")(self.list)
        routes.get("/users/<user_id>")(self.get)
        routes.patch("/users/<user_id>")(self.update)
        routes.get("/users/<user_id>/keys")(self.list_keys)
        routes.post("/users/<user_id>/keys")(self.create_key)
        routes.delete("/users/<user_id>/keys/<key_id>")(self.revoke_key)
        return routes

    async def create(self) -> Response:
        """Let somebody in, active and without a key."""
        caller = administrator()
        fields = await read_fields()
        email, role = _read_email(fields), _read_role(fields) or Role.MEMBER
        fields.end()
        _may_own(caller, role)
        user = await self.accounts.create_user(caller.tenant_id, email, role, actor=caller.id)
        return answer(user_to_json(user), 201, {"Location": f"/v1/users/{user.id}"})

    async def list(self) -> Response:
        """Answer a page of the tenant's users, newest first."""
        caller = administrator()
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.accounts.users(caller.tenant_id, before=before, limit=limit + 1)
        return answer(page_to_json(rows, limit, user_to_json, lambda user: user.id))

    async def get(self, user_id: str) -> Response:
        """Answer one user."""
        return answer(user_to_json(await self._user(administrator(), user_id)))

    async def update(self, user_id: str) -> Response:
        """Give a user another role or status; what is not given stays."""
        caller = administrator()
        user = await self._user(caller, user_id)
        _may_own(caller, user.role)
        fields = await read_fields()
        role, status = _read_role(fields), _read_status(fields)
        fields.end()

        def change(now: User) -> User:
            changed = attrs.evolve(now, role=role or now.role, status=status or now.status)
            for owning in (now.role, changed.role):
                _may_own(caller, owning)
            return changed

        user = await self.accounts.update_user(caller.tenant_id, user.id, change, actor=caller.id)
        return answer(user_to_json(user))

    async def list_keys(self, user_id: str) -> Response:
        """Answer a page of a user's keys, revoked ones too, newest first."""
        user = await self._user(administrator(), user_id)
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.accounts.keys(user.tenant_id, user.id, before=before, limit=limit + 1)
        return answer(page_to_json(rows, limit, key_to_json, lambda key: key.id))

    async def create_key(self, user_id: str) -> Response:
        """Make a key; its text is in this answer, and never again."""
        caller = administrator()
        user = await self._user(caller, user_id)
        _may_own(caller, user.role)
        await read_nothing()
        key = await self.accounts.create_key(user.tenant_id, user.id, actor=caller.id)
        return answer(new_key_to_json(key), 201)

    async def revoke_key(self, user_id: str, key_id: str) -> Response:
        """End a key; ending it again is fine."""
        caller = administrator()
        user = await self._user(caller, user_id)
        _may_own(caller, user.role)
        await self.accounts.revoke_key(user.tenant_id, user.id, read_id(key_id), actor=caller.id)
        return nothing()

    async def _user(self, caller: User, user_id: str) -> User:
        return await self.accounts.user_by_id(caller.tenant_id, read_id(user_id))


@attrs.frozen
class AuditRoutes:
    """The route of the audit trail."""

    audit: Audit

    def blueprint(self) -> Blueprint:
        """Return the route."""
        routes = Blueprint("audit", __name__)
        routes.get("/audit-events")(self.list)
        return routes

    async def list(self) -> Response:
        """Answer a page of what was done in the tenant, newest first."""
        caller = administrator()
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.audit.list(caller.tenant_id, before=before, limit=limit + 1)
        return answer(page_to_json(rows, limit, audit_event_to_json, lambda event: event.id))


def _may_own(caller: User, role: Role) -> None:
    """Refuse an admin what concerns owners."""
    if role is Role.OWNER and caller.role is not Role.OWNER:
        raise Refused(FORBIDDEN, "Only an owner may make or change owners and their keys")


def _read_email(fields: Fields) -> str:
    email = fields.text("email", longest=LONGEST_EMAIL)
    if _EMAIL.fullmatch(email) is None or not email.isprintable():
        raise InvalidInput("must be an address such as ada@example.com", field="email")
    return email


def _read_role(fields: Fields) -> Role | None:
    """Read a role; None where none is given."""
    return Role(fields.known("role", frozenset(Role))) if "role" in fields.members else None


def _read_status(fields: Fields) -> UserStatus | None:
    """Read a status; None where none is given."""
    known = frozenset(UserStatus)
    return UserStatus(fields.known("status", known)) if "status" in fields.members else None
