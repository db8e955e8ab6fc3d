"""Who sees what: one predicate, and 404 for all the rest."""

from __future__ import annotations

import attrs
import httpx
import pytest

from hango.domain import Role, Run, Session, User, new_id
from hango.store.accounts import Accounts

from support.api import Api

# every way to a session and to a run, with bodies that would do something if they were let through
SESSION_CALLS: list[tuple[str, str, bytes | None]] = [
    ("GET", "/v1/sessions/{session}", None),
    ("GET", "/v1/sessions/{session}/messages", None),
    ("GET", "/v1/sessions/{session}/messages?limit=0&cursor=x", None),
    ("POST", "/v1/sessions/{session}/messages", b'{"role":"user","content":"hi"}'),
    ("POST", "/v1/sessions/{session}/messages", b'{"role":'),
    ("POST", "/v1/sessions/{session}/runs", b'{"input":"hi"}'),
    ("POST", "/v1/sessions/{session}/runs", b'{"input":" "}'),
    ("POST", "/v1/sessions/{session}/runs", b"[" * 10_000),
    ("POST", "/v1/sessions/{session}/runs", b" " * 300_000),
    ("GET", "/v1/sessions/{session}/runs", None),
    ("GET", "/v1/sessions/{session}/runs?state=none", None),
]
RUN_CALLS: list[tuple[str, str, bytes | None]] = [
    ("GET", "/v1/runs/{run}", None),
    ("POST", "/v1/runs/{run}/cancel", None),
]


@attrs.frozen
class Scene:
    """A member's session, with a run in it."""

    api: Api
    session: Session
    run: Run

    async def call(self, user: User, method: str, path: str, body: bytes | None) -> httpx.Response:
        """Do something with them as *user*."""
        url = path.format(session=self.session.id, run=self.run.id)
        async with self.api.client(user) as client:
            return await client.request(
                method, url, content=body, headers={"Content-Type": "application/json"}
            )

    async def written(self) -> tuple[int, ...]:
        """Count all that a call could have left behind."""
        return (
            await self.api.count("runs"),
            await self.api.count("messages"),
            await self.api.count("audit_events"),
            await self.api.count("runs", "state = 'queued'"),
        )


@pytest.fixture
async def scene(api: Api) -> Scene:
    """Make a member's session whose line is full, so that every check has something to say."""
    session = await api.session(Role.MEMBER)
    runs = [await api.acme.run(session, role=Role.MEMBER, max_live=3) for _ in range(3)]
    return Scene(api, session, runs[0])


async def strangers(api: Api) -> list[User]:
    """Return everybody who must not see what acme's member made."""
    colleague = await Accounts(api.pool).create_user(
        api.acme.tenant.id, "colleague@acme.test", Role.MEMBER, actor=None
    )
    key = await Accounts(api.pool).create_key(api.acme.tenant.id, colleague.id, actor=None)
    api.keys[colleague.id] = key.key
    return [colleague, *api.globex.users.values()]


@pytest.mark.rule(13)
@pytest.mark.parametrize(("method", "path", "body"), SESSION_CALLS + RUN_CALLS)
async def test_a_stranger_sees_what_an_unknown_id_shows(
    scene: Scene, method: str, path: str, body: bytes | None
) -> None:
    """To a colleague and another tenant it is a 404 like any other, and nothing happens (F01, F02)."""
    unknown = attrs.evolve(
        scene,
        session=attrs.evolve(scene.session, id=new_id()),
        run=attrs.evolve(scene.run, id=new_id()),
    )
    users = await strangers(scene.api)
    before = await scene.written()
    for user in users:
        hidden = await scene.call(user, method, path, body)
        absent = await unknown.call(user, method, path, body)
        assert hidden.status_code == 404
        assert hidden.content == absent.content
        assert shown_headers(hidden) == shown_headers(absent)
    assert await scene.written() == before


def shown_headers(response: httpx.Response) -> dict[str, str]:
    """Return the headers that could tell two answers apart.

    Whether the connection is closed depends on how much of the body had arrived by then.
    """
    ignored = {"date", "connection", "x-request-id"}
    return {name: value for name, value in response.headers.items() if name not in ignored}


@pytest.mark.rule(13)
@pytest.mark.parametrize("role", list(Role))
async def test_creator_admin_and_owner_see_all_of_it(scene: Scene, role: Role) -> None:
    """In the tenant, the creator and both administrators see and change it (F01)."""
    user = scene.api.acme.users[role]
    statuses = [
        (await scene.call(user, method, path, body)).status_code
        for method, path, body in SESSION_CALLS + RUN_CALLS
    ]
    assert statuses == [200, 200, 422, 409, 400, 429, 422, 400, 413, 200, 422, 200, 200]


@pytest.mark.rule(13)
async def test_lists_hold_only_what_is_visible(scene: Scene) -> None:
    """Lists show a member their own, an administrator all of the tenant, another tenant nothing."""
    own = await scene.api.session(Role.ADMIN)
    run = await scene.api.acme.run(own, role=Role.ADMIN)
    users = [*scene.api.acme.users.values(), *await strangers(scene.api)]
    seen = {
        user.email: [
            {row["id"] for row in (await scene.call(user, "GET", path, None)).json()["data"]}
            for path in ("/v1/sessions", "/v1/runs?state=queued")
        ]
        for user in users
    }
    members = {str(scene.session.id)}
    assert seen["member@acme.test"][0] == members
    assert len(seen["member@acme.test"][1]) == 3
    for administrator in ("admin@acme.test", "owner@acme.test"):
        assert seen[administrator][0] == members | {str(own.id)}
        assert str(run.id) in seen[administrator][1]
        assert len(seen[administrator][1]) == 4
    for email in [user.email for user in users if not user.email.endswith("@acme.test")]:
        assert seen[email] == [set(), set()]
    assert seen["colleague@acme.test"] == [set(), set()]


@pytest.mark.rule(13)
async def test_a_run_is_only_found_in_its_own_session(scene: Scene) -> None:
    """The runs of a session are that session's, also for somebody who sees others (F01)."""
    other = await scene.api.session(Role.MEMBER)
    user = scene.api.acme.users[Role.OWNER]
    found = await scene.call(user, "GET", f"/v1/sessions/{other.id}/runs", None)
    assert found.json() == {"data": [], "next_cursor": None}


@pytest.mark.rule(13)
async def test_a_strangers_cursor_shows_nothing_more(scene: Scene) -> None:
    """A cursor taken from an administrator's list widens nobody's list."""
    owner, member = (scene.api.acme.users[role] for role in (Role.OWNER, Role.MEMBER))
    for _ in range(2):
        await scene.api.session(Role.OWNER)
    first = (await scene.call(owner, "GET", "/v1/sessions?limit=1", None)).json()
    path = f"/v1/sessions?cursor={first['next_cursor']}"
    assert len((await scene.call(owner, "GET", path, None)).json()["data"]) == 2
    shown = (await scene.call(member, "GET", path, None)).json()["data"]
    assert [row["id"] for row in shown] == [str(scene.session.id)]
