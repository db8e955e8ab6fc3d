"""Pages of lists: every row once, whatever times they share (D14, N37)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

import pytest

from hango.domain import Role, TextBlock, new_id
from hango.store.agents import Agents, NewAgent
from hango.testing.plugin import SeededTenant, sql
from hango.web.app import ROUTES
from hango.web.route import Route

from support.api import Api

COUNT = 7

Make = Callable[[SeededTenant, UUID], Awaitable[object]]


async def make_run(world: SeededTenant, session_id: UUID) -> None:
    """Queue a run."""
    said = (TextBlock("x"),)
    await world.runs.create(world.scope(), session_id, said, max_live=COUNT)


async def make_message(world: SeededTenant, session_id: UUID) -> None:
    """Add a message."""
    await world.sessions.add_message(world.scope(), session_id, "user", (TextBlock("x"),))


async def make_agent(world: SeededTenant, _: UUID) -> None:
    """Store an agent."""
    new = NewAgent(f"a{new_id().hex}", "A", "fake", "m")
    await Agents(world.pool).create(world.tenant.id, new, actor=None)


async def make_session(world: SeededTenant, _: UUID) -> None:
    """Open a session."""
    await world.session()


async def make_user(world: SeededTenant, _: UUID) -> None:
    """Let somebody in."""
    email = f"{new_id()}@acme.test"
    await world.accounts.create_user(world.tenant.id, email, Role.MEMBER, actor=None)


async def make_key(world: SeededTenant, _: UUID) -> None:
    """Make a key."""
    await world.accounts.create_key(world.tenant.id, world.users[Role.OWNER].id, actor=None)


# by route: what is listed, and how one more comes to be
LISTS: Mapping[str, tuple[str, Make]] = {
    "list_session_runs": ("runs", make_run),
    "list_runs": ("runs", make_run),
    "list_sessions": ("sessions", make_session),
    "list_messages": ("messages", make_message),
    "list_agents": ("agents", make_agent),
    "list_users": ("users", make_user),
    "list_keys": ("api_keys", make_key),
    "list_audit_events": ("audit_events", make_session),
}
PAGED = [route for route in ROUTES if any(parameter.name == "cursor" for parameter in route.parameters)]

# all at one moment; one microsecond apart, the newest id being the oldest; within one millisecond
TIMES = {
    "one moment": "timestamptz '2026-01-01'",
    "backwards": "timestamptz '2026-01-01' - (rank * interval '1 microsecond')",
    "in pairs": "timestamptz '2026-01-01 00:00:00.0009995' + (rank / 2 * interval '1 microsecond')",
}


def test_every_list_is_tried() -> None:
    """Every list of the API is one of those below."""
    assert set(LISTS) == {route.name for route in PAGED}


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("route", PAGED, ids=lambda route: route.name)
async def test_every_row_is_on_one_page(api: Api, route: Route, times: str) -> None:
    """Rows of one moment, or microseconds apart, are shown once each, in one order (D14)."""
    table, make = LISTS[route.name]
    session = await api.session(Role.OWNER)
    for _ in range(COUNT):
        await make(api.acme, session.id)
    ranked = f"select id, row_number() over (order by id) as rank from {table}"  # noqa: S608  # ours
    await sql(
        api.pool,
        f"update {table} set created_at = {TIMES[times]} from ({ranked}) as r where r.id = {table}.id",  # noqa: S608  # ours
    )
    path = route.path.format(session_id=session.id, user_id=api.acme.users[Role.OWNER].id)
    whole = await walk(api, path, 200)
    assert len(whole) == len(set(whole)) >= COUNT
    # by id; runs by the database's clock and then by id, in a session as they stand in its line
    order = "created_at desc, id desc" if route.name == "list_runs" else "id desc"
    shown = await sql(api.pool, f"select id from {table} order by {order}")  # noqa: S608  # ours
    in_order = [str(row["id"]) for row in shown if str(row["id"]) in whole]
    assert whole == (in_order[::-1] if table == "messages" else in_order)
    for limit in (1, 2, COUNT - 1, len(whole)):
        assert await walk(api, path, limit) == whole


async def walk(api: Api, path: str, limit: int) -> list[str]:
    """Return the ids on all pages, in their order."""
    shown, cursor = [], ""
    async with api.as_role(Role.OWNER) as owner:
        while True:
            page = (await owner.get(f"{path}?limit={limit}{cursor}")).json()
            shown += [row["id"] for row in page["data"]]
            if page["next_cursor"] is None:
                return shown
            assert len(page["data"]) == limit
            cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.parametrize("sizes", [[9, 1, 1, 300, 2000, 5, 5, 400, 400, 300], [2000], [700] * 3])
async def test_a_page_ends_at_a_megabyte(api: Api, sizes: list[int]) -> None:
    """Pages hold no more than a megabyte of content, or one row; all rows are shown (S-H4)."""
    session = await api.session(Role.OWNER)
    for size in sizes:
        said = (TextBlock("x" * (size * 1024 - 100)),)
        await api.acme.sessions.add_message(api.acme.scope(Role.OWNER), session.id, "user", said)
        await api.acme.runs.create(api.acme.scope(Role.OWNER), session.id, said, max_live=100)
        await sql(api.pool, "update runs set state = 'cancelled', finished_at = now()")
        prompt = NewAgent(f"a{new_id().hex}", "A", "fake", "m", said[0].text)
        await Agents(api.pool).create(api.acme.tenant.id, prompt, actor=None)
    path = f"/v1/sessions/{session.id}"
    oldest = await sized_pages(api, f"{path}/messages", "content")
    assert oldest == pages_of(sizes)
    assert await sized_pages(api, f"{path}/runs", "input", "include=input") == pages_of(sizes[::-1])
    assert len(await sized_pages(api, f"{path}/runs", "id")) == 1
    newest = await sized_pages(api, "/v1/agents", "system_prompt")
    assert [size for page in newest for size in page if size] == sizes[::-1]  # one was there before


def pages_of(sizes: list[int]) -> list[list[int]]:
    """Return *sizes* (KiB) as they are to be shown: pages of a megabyte, or of one row."""
    pages: list[list[int]] = []
    for size in sizes:
        if not pages or sum(pages[-1]) + size > 1024:
            pages.append([])
        pages[-1].append(size)
    return pages


async def sized_pages(api: Api, path: str, member: str, query: str = "") -> list[list[int]]:
    """Return how large (KiB) a member of each row is, page by page."""
    pages, cursor = [], ""
    async with api.as_role(Role.OWNER) as client:
        while True:
            page = (await client.get(f"{path}?{query}{cursor}")).json()
            pages.append([round(len(json.dumps(row[member])) / 1024) for row in page["data"]])
            if page["next_cursor"] is None:
                return pages
            cursor = f"&cursor={page['next_cursor']}"
