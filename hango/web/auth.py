"""Who is calling: the key of a request, and ``/v1/me``.

Rule: nothing below ``/v1`` runs before `require_key` has answered for it, and every failure of a key
is the same 401.  Keys are never logged, quoted or compared here: the store knows their digests only.
Only `hango.web` uses it.
"""

from __future__ import annotations

import re

import attrs
from quart import Blueprint, Response, g, request

from hango.domain import Scope, User, UserStatus
from hango.errors import Forbidden
from hango.store.accounts import Accounts
from hango.web.problem import UNAUTHENTICATED, Refused
from hango.web.shapes import user_to_json
from hango.web.wire import answer

# what a key can look like at all: anything else is not worth a question to the database
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(hgo_[A-Za-z0-9_-]{1,200})")


def caller() -> User:
    """Return the user whose key this request carries."""
    user = g.user
    if not isinstance(user, User):
        raise TypeError("asked for the caller of a request that needs no key")
    return user


def scope() -> Scope:
    """Return what the caller may see."""
    user = caller()
    return Scope(tenant_id=user.tenant_id, user_id=user.id, role=user.role)


def administrator() -> User:
    """Return the caller.

    Raises:
        Forbidden: a member is calling.
    """
    user = caller()
    if not user.role.administers:
        raise Forbidden
    return user


@attrs.frozen
class AuthRoutes:
    """The check of keys, and ``/me``."""

    accounts: Accounts

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("auth", __name__)
        routes.get("/me")(self.me)
        return routes

    async def require_key(self) -> None:
        """Find the caller, before every request below ``/v1``."""
        g.user = await self._authenticate(request.headers.getlist("Authorization"))

    async def _authenticate(self, values: list[str]) -> User:
        match = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
        user = await self.accounts.authenticate(match[1]) if match else None
        if user is None or user.status is not UserStatus.ACTIVE:
            raise Refused(UNAUTHENTICATED)
        return user

    async def me(self) -> Response:
        """Answer the caller."""
        return answer(user_to_json(caller()))
