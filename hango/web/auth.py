"""API keys: who is calling, and ``/v1/me``.

Rule: no handler below ``/v1`` runs before `require_key` has returned, and every failure of a key is the
same 401.  Keys are never logged, quoted or compared here: the store knows only their digests.
"""

from __future__ import annotations

import re

import attrs
from quart import Response, g, request

from hango.domain import Scope, User
from hango.errors import Forbidden
from hango.store.accounts import Accounts
from hango.web.access import current
from hango.web.denials import Denials
from hango.web.models.responses import UserJson
from hango.web.problem import UNAUTHENTICATED, ApiError
from hango.web.route import Reply, route
from hango.web.wire import json_response

# what a key can look like at all: anything else is not worth a query
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(hgo_[A-Za-z0-9_-]{1,200})")


def caller() -> User:
    """Return the user whose key this request carries."""
    user = g.user
    if not isinstance(user, User):
        raise TypeError("this request needs no key, so it has no caller")
    return user


def scope() -> Scope:
    """Return what the caller may see."""
    return caller().scope


def administrator() -> User:
    """Return the caller.

    Raises:
        Forbidden: the caller is a member.
    """
    user = caller()
    if not user.role.administers:
        raise Forbidden
    return user


@attrs.frozen
class AuthRoutes:
    """The check of keys, and ``/v1/me``."""

    accounts: Accounts
    denials: Denials

    async def require_key(self) -> None:
        """Find the caller; runs before every handler below ``/v1``."""
        g.user = await self._authenticate(request.headers.getlist("Authorization"))
        if (access := current()) is not None:
            access.user = g.user

    async def _authenticate(self, values: list[str]) -> User:
        match = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
        use = await self.accounts.authenticate(match[1]) if match else None
        if use is not None and not use.refusal:
            return use.user
        if use is not None:
            await self.denials.refused_key(use.refusal, use)
        elif values:
            await self.denials.refused_key("unknown" if match else "malformed")
        raise ApiError(UNAUTHENTICATED)

    @route("GET", "/v1/me", "server", Reply(200, "The user.", UserJson))
    async def get_me(self) -> Response:
        """Get the user whose key this is."""
        return json_response(UserJson.of(caller()))
