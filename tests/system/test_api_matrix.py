"""Everybody, everything, whosever: the answers follow one rule, and what was done is on record.

Generated from the description of the API, so that a route that is added is in it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from uuid import UUID

import attrs
import httpx
import pytest

from hango.domain import JsonObject, Role, TextBlock, User, new_id
from hango.store.accounts import Accounts
from hango.testing.plugin import SeededTenant, sql
from hango.testing.seeded_tenant import scope_of
from hango.web import problem
from hango.web.app import ROUTES
from hango.web.route import Route

from support.api import Api

# what each change leaves in the trail, and of what kind its target is
ACTIONS = {
    "create_run": ("run.create", "run"),
    "cancel_run": ("run.cancel", "run"),
    "create_session": ("session.create", "session"),
    "create_message": ("message.create", "message"),
    "create_agent": ("agent.create", "agent"),
    "update_agent": ("agent.update", "agent"),
    "create_user": ("user.create", "user"),
    "update_user": ("user.update", "user"),
    "create_key": ("key.create", "key"),
    "revoke_key": ("key.revoke", "key"),
}


class Whose(StrEnum):
    """Whom the thing belongs to that is asked for."""

    OWN = "own"
    COLLEAGUES = "colleague's"
    STRANGERS = "another tenant's"
    NOBODYS = "unknown"


def expected(route: Route, role: Role, whose: Whose) -> int:
    """Return the status that is right: the whole of who may do what."""
    if route.name == "get_metrics":
        return 404  # this app has no exporter to read
    if problem.FORBIDDEN in route.problems and role is Role.MEMBER:
        return 403
    if names(route) and whose in {Whose.STRANGERS, Whose.NOBODYS}:
        return 404
    hidden = whose is Whose.COLLEAGUES and role is Role.MEMBER
    if hidden and names(route) & {"session_id", "run_id"}:
        return 404
    return min(answer.status for answer in route.replies)


def names(route: Route) -> set[str]:
    """Return the ids a route takes, in its path or its body."""
    return {*route.ids, *(route.example or {})} & {
        *("session_id", "run_id", "agent_id", "user_id", "key_id")
    }


@attrs.frozen
class Cast:
    """One caller, made for one request, and what they ask for."""

    api: Api
    world: SeededTenant
    caller: User
    whose: Whose

    @classmethod
    async def of(cls, api: Api, world: SeededTenant, role: Role, whose: Whose) -> Cast:
        """Let the caller in."""
        return cls(api, world, await person(api, world, role), whose)

    async def ids(self, route: Route) -> Mapping[str, UUID]:
        """Make what *route* names, and return its ids."""
        wanted = names(route)
        if self.whose is Whose.NOBODYS or not wanted:
            return {name: new_id() for name in wanted}
        world, maker = await self._maker()
        ids = {"user_id": maker.id, "agent_id": world.agent.id}
        if "key_id" in wanted:
            made = await world.accounts.create_key(maker.tenant_id, maker.id, actor=None)
            ids["key_id"] = made.id
        if wanted & {"session_id", "run_id"}:
            session = await world.sessions.create(scope_of(maker), world.agent.id)
            ids["session_id"] = session.id
        if "run_id" in wanted:
            said = (TextBlock("hello"),)
            run = await world.runs.create(scope_of(maker), ids["session_id"], said, max_live=1)
            ids["run_id"] = run.id
        return ids

    async def _maker(self) -> tuple[SeededTenant, User]:
        if self.whose is Whose.OWN:
            return self.world, self.caller
        if self.whose is Whose.COLLEAGUES:
            return self.world, await person(self.api, self.world, Role.MEMBER)
        other = self.api.globex if self.world is self.api.acme else self.api.acme
        return other, await person(self.api, other, Role.MEMBER)

    async def ask(self, route: Route, ids: Mapping[str, UUID]) -> httpx.Response:
        """Ask for *route*, as the caller, in the words of its example."""
        path = route.path.format(**ids)
        async with self.api.client(self.caller) as client:
            return await client.request(route.method, path, json=body_of(route, ids))


async def person(api: Api, world: SeededTenant, role: Role) -> User:
    """Let somebody into a tenant, with a key."""
    accounts, email = Accounts(api.pool), f"{new_id()}@{world.tenant.slug}.test"
    user = await accounts.create_user(world.tenant.id, email, role, actor=None)
    api.keys[user.id] = (await accounts.create_key(world.tenant.id, user.id, actor=None)).key
    return user


def body_of(route: Route, ids: Mapping[str, UUID]) -> JsonObject | None:
    """Return the example of *route*, with these ids, and names that are free."""
    if route.example is None:
        return None
    free = {"email": f"{new_id()}@example.com", "slug": f"a{new_id().hex}"}
    known = {name: str(value) for name, value in ids.items()} | free
    return {name: known.get(name, value) for name, value in route.example.items()}


async def trail(api: Api) -> dict[UUID, tuple[object, ...]]:
    """Return all that is on record: action, target and actor, by id."""
    rows = await sql(api.pool, "select * from audit_events")
    return {
        row["id"]: (row["action"], row["target_kind"], row["target_id"], row["actor_id"])
        for row in rows
    }


def left_by(
    route: Route, caller: User, answer: httpx.Response, ids: Mapping[str, UUID]
) -> list[tuple[object, ...]]:
    """Return what must be on record after *answer*."""
    if answer.status_code == problem.FORBIDDEN.status:
        return [("access.deny", "user", caller.id, caller.id)]
    if not answer.is_success or route.method == "GET":
        return []
    target = UUID(answer.json()["id"]) if answer.content else ids["key_id"]
    return [(*ACTIONS[route.name], target, caller.id)]


async def cases(api: Api, route: Route) -> AsyncIterator[tuple[Cast, Role]]:
    """Go through all people of both tenants, and all whom a thing can belong to."""
    for world in (api.acme, api.globex):
        for role in Role:
            for whose in Whose if names(route) else [Whose.OWN]:
                yield await Cast.of(api, world, role, whose), role


def test_every_change_has_its_action() -> None:
    """What the trail must hold is said for every route that changes something."""
    assert set(ACTIONS) == {it.name for it in ROUTES if it.method != "GET"}


@pytest.mark.rule(13)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_who_may_do_what_to_whose(api: Api, route: Route) -> None:
    """Everybody gets the status of the rule, and what was done, no more, is on record (F01).

    The 404 of what is hidden and of what is not there are the same bytes, as are all 403s.
    """
    refusals: dict[int, set[bytes]] = {403: set(), 404: set()}
    async for cast, role in cases(api, route):
        ids = await cast.ids(route)
        before = await trail(api)
        answer = await cast.ask(route, ids)
        assert answer.status_code == expected(route, role, cast.whose), (role, cast.whose)
        refusals.get(answer.status_code, set()).add(shown(answer))
        new = [event for key, event in (await trail(api)).items() if key not in before]
        assert new == left_by(route, cast.caller, answer, ids), (role, cast.whose)
    assert all(len(answers) <= 1 for answers in refusals.values())


def shown(answer: httpx.Response) -> bytes:
    """Return all of *answer* that could tell it from another."""
    each_its_own = {b"date", b"x-request-id"}
    headers = sorted(item for item in answer.headers.raw if item[0].lower() not in each_its_own)
    return repr(headers).encode() + answer.content
