"""``/v1/users``, their keys, and ``/v1/audit-events``: administration by admins and owners.

Rule: a member gets the same 403 for everything, before anything is looked up.  Only an owner may do
what would make an admin an owner: make or change owners, or their keys.
"""

from __future__ import annotations

import attrs
from quart import Response, request

from hango.domain import Role, User
from hango.store.accounts import Accounts
from hango.store.audit import Audit
from hango.store.pages import Page
from hango.web.auth import administrator
from hango.web.models.requests import NewUserBody, UserChangeBody
from hango.web.models.responses import AuditEventPage, KeyPage, NewKeyJson, UserJson, UserPage
from hango.web.problem import ALREADY_EXISTS, FORBIDDEN, LAST_OWNER, ApiError
from hango.web.route import Reply, page_route, route
from hango.web.wire import (
    json_response,
    no_content,
    page_response,
    read_body,
    read_empty_body,
    read_id,
    read_id_cursor,
    read_limit,
)

_TAG = "administration"
_USERS, _USER = "/v1/users", "/v1/users/{user_id}"
_REFUSED = (FORBIDDEN,)


@attrs.frozen
class UserRoutes:
    """The routes of users and their keys."""

    accounts: Accounts

    @route(
        "POST",
        _USERS,
        _TAG,
        Reply(201, "The user.", UserJson, headers=["Location"]),
        body=NewUserBody,
        problems=[*_REFUSED, ALREADY_EXISTS],
    )
    async def create_user(self) -> Response:
        """Create a user.

        The user is active and has no key yet.  Only an owner can create an owner.
        """
        caller = administrator()
        body = await read_body(NewUserBody)
        _may_own(caller, body.role)
        user = await self.accounts.create_user(caller.tenant_id, body.email, body.role, actor=caller.id)
        return json_response(UserJson.of(user), 201, {"Location": f"/v1/users/{user.id}"})

    @page_route(_USERS, _TAG, UserPage, problems=_REFUSED)
    async def list_users(self) -> Response:
        """List users, newest first."""
        caller = administrator()
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.accounts.users(caller.tenant_id, before=before, limit=limit + 1)
        return await page_response(UserPage, Page.of(rows, limit), lambda user: user.id)

    @route("GET", _USER, _TAG, Reply(200, "The user.", UserJson), problems=_REFUSED)
    async def get_user(self, user_id: str) -> Response:
        """Get a user."""
        return json_response(UserJson.of(await self._user(administrator(), user_id)))

    @route(
        "PATCH",
        _USER,
        _TAG,
        Reply(200, "The user.", UserJson),
        body=UserChangeBody,
        problems=[*_REFUSED, LAST_OWNER],
    )
    async def update_user(self, user_id: str) -> Response:
        """Change a user's role or status.

        Only an owner can change an owner, or make one.  The last active owner cannot be demoted or
        disabled.  A promotion revokes the user's keys, unless `keep_keys` is true.
        """
        caller = administrator()
        user = await self._user(caller, user_id)
        _may_own(caller, user.role)
        body = await read_body(UserChangeBody)

        def change(now: User) -> User:
            changed = attrs.evolve(now, role=body.role or now.role, status=body.status or now.status)
            for owning in (now.role, changed.role):
                _may_own(caller, owning)
            return changed

        user = await self.accounts.update_user(
            caller.tenant_id, user.id, change, actor=caller.id, keep_keys=body.keep_keys
        )
        return json_response(UserJson.of(user))

    @page_route(f"{_USER}/keys", _TAG, KeyPage, problems=_REFUSED)
    async def list_keys(self, user_id: str) -> Response:
        """List a user's keys, revoked ones included, newest first."""
        user = await self._user(administrator(), user_id)
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.accounts.keys(user.tenant_id, user.id, before=before, limit=limit + 1)
        return await page_response(KeyPage, Page.of(rows, limit), lambda key: key.id)

    @route(
        "POST",
        f"{_USER}/keys",
        _TAG,
        Reply(201, "The key and its text, which is shown only this once.", NewKeyJson),
        problems=_REFUSED,
    )
    async def create_key(self, user_id: str) -> Response:
        """Create an API key for a user.

        Only an owner can create a key for an owner.
        """
        caller = administrator()
        user = await self._user(caller, user_id)
        _may_own(caller, user.role)
        await read_empty_body()
        key = await self.accounts.create_key(user.tenant_id, user.id, actor=caller.id, role=user.role)
        return json_response(NewKeyJson.of(key), 201)

    @route(
        "DELETE",
        f"{_USER}/keys/{{key_id}}",
        _TAG,
        Reply(204, "The key is revoked, by this request or an earlier one."),
        problems=_REFUSED,
    )
    async def revoke_key(self, user_id: str, key_id: str) -> Response:
        """Revoke a key.

        Only an owner can revoke an owner's key.  Revoking a key again changes nothing.
        """
        caller = administrator()
        user = await self._user(caller, user_id)
        _may_own(caller, user.role)
        await self.accounts.revoke_key(user.tenant_id, user.id, read_id(key_id), actor=caller.id)
        return no_content()

    async def _user(self, caller: User, user_id: str) -> User:
        return await self.accounts.user_by_id(caller.tenant_id, read_id(user_id))


@attrs.frozen
class AuditRoutes:
    """The route of the audit log."""

    audit: Audit

    @page_route("/v1/audit-events", _TAG, AuditEventPage, problems=_REFUSED)
    async def list_audit_events(self) -> Response:
        """List what was done in the tenant, and what was refused, newest first."""
        caller = administrator()
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.audit.list(caller.tenant_id, before=before, limit=limit + 1)
        return await page_response(AuditEventPage, Page.of(rows, limit), lambda event: event.id)


def _may_own(caller: User, role: Role) -> None:
    """Refuse an admin what only owners may do."""
    if role is Role.OWNER and caller.role is not Role.OWNER:
        raise ApiError(FORBIDDEN, "Only an owner may create or change owners and their keys")
