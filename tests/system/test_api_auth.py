"""Keys: who is let in, and what everybody else is told."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator

import pytest

from hango.db.pool import Pool
from hango.domain import Role
from hango.telemetry.logs import TextLines
from hango.testing.plugin import sql
from hango.web import denials

from support.api import Api, is_problem, serving

NO_KEYS = [
    None,
    "",
    "Bearer",
    "Bearer hgo_",
    "Bearer hgo_unknown",
    "Bearer sk-another-service",
    "Basic hgo_unknown",
    "hgo_unknown",
    "Bearer hgo_unknown hgo_unknown",
    "Bearer hgo_\xff\xfe",
    "Bearer hgo_" + "x" * 5000,
    "Bearer ' or 1=1 --",
]


@pytest.mark.parametrize("value", NO_KEYS, ids=repr)
async def test_without_a_live_key_there_is_one_answer(api: Api, value: str | None) -> None:
    """Missing, malformed and unknown keys get the same 401, whatever is asked for."""
    headers = {} if value is None else {b"Authorization": value.encode("latin-1")}
    async with api.client() as client:
        answers = [
            await client.get("/v1/me", headers=headers),
            await client.post("/v1/agents", headers=headers, content=b"{"),
            await client.get("/v1/runs/%00", headers=headers),
        ]
        plain = await client.get("/v1/me")
    for response in answers:
        assert is_problem(response, 401, "unauthenticated")
        assert response.headers["www-authenticate"] == 'Bearer realm="hango"'
        assert response.content == plain.content


async def test_two_keys_are_none(api: Api) -> None:
    """A request that says twice who it is is not believed."""
    key = api.keys[api.acme.users[Role.OWNER].id]
    value = ("Authorization", f"Bearer {key}")
    async with api.client() as client:
        assert is_problem(await client.get("/v1/me", headers=[value, value]), 401, "unauthenticated")


async def test_the_scheme_is_spelled_as_one_likes(api: Api) -> None:
    """The name of the scheme has no case (RFC 9110 §11.1)."""
    key = api.keys[api.acme.users[Role.OWNER].id]
    async with api.client() as client:
        response = await client.get("/v1/me", headers={"Authorization": f"bEARER  {key}"})
    assert response.status_code == 200


@pytest.mark.rule(12)
@pytest.mark.parametrize(
    "statement",
    [
        "update users set status = 'disabled' where id = $1",
        "update api_keys set revoked_at = now() where user_id = $1",
    ],
)
async def test_a_key_ends_with_its_user_or_itself(api: Api, statement: str) -> None:
    """A disabled user and a revoked key are refused at the next request (F01)."""
    user = api.acme.users[Role.MEMBER]
    async with api.client(user) as client:
        assert (await client.get("/v1/me")).status_code == 200
        await sql(api.pool, statement, user.id)
        ended = await client.get("/v1/me")
    assert is_problem(ended, 401, "unauthenticated")


@pytest.mark.parametrize("role", list(Role))
async def test_me_is_the_caller(api: Api, role: Role) -> None:
    """`/v1/me` answers the user whose key was sent."""
    user = api.acme.users[role]
    async with api.client(user) as client:
        response = await client.get("/v1/me")
    me = response.json()
    assert response.headers["cache-control"] == "no-store"
    assert me.pop("created_at").endswith("Z")
    assert me == {
        "id": str(user.id),
        "tenant_id": str(user.tenant_id),
        "email": user.email,
        "role": role.value,
        "status": "active",
    }


async def test_rights_are_todays(api: Api) -> None:
    """A role that changed counts at the next request."""
    user = api.acme.users[Role.ADMIN]
    session = await api.session(Role.OWNER)
    async with api.client(user) as client:
        before = await client.get(f"/v1/sessions/{session.id}")
        await sql(api.pool, "update users set role = 'member' where id = $1", user.id)
        after = await client.get(f"/v1/sessions/{session.id}")
    assert (before.status_code, after.status_code) == (200, 404)


async def test_no_key_is_ever_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever happens to a request, its key is in no log line."""
    key = api.keys[api.acme.users[Role.OWNER].id]
    with caplog.at_level(logging.DEBUG, "hango"), caplog.at_level(logging.DEBUG, "hypercorn"):
        async with api.client(key=key) as client:
            await client.get("/v1/me")
            await client.get("/v1/nothing")
            await client.post("/v1/agents", content=b"{")
            await sql(api.pool, "alter table agents rename to agents_gone")
            broken = await client.get("/v1/agents")
    lines = "\n".join(TextLines().format(record) for record in caplog.records)
    assert is_problem(broken, 500, "internal")
    assert key not in lines
    assert key not in caplog.text


async def test_an_error_of_ours_tells_nothing(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is a 500 without SQL or names; the log has its type and frames (F04)."""
    await sql(api.pool, "alter table agents rename to agents_gone")
    async with api.as_role(Role.OWNER) as client:
        response = await client.get("/v1/agents")
    assert is_problem(response, 500, "internal")
    assert "agents_gone" not in response.text
    assert "relation" not in response.text
    (record,) = [record for record in caplog.records if record.name == "hango.web"]
    line = TextLines().format(record)
    assert "UndefinedTableError" in line
    assert "agents.py" in line
    assert "relation" not in line


@pytest.fixture
async def long_intervals(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """Serve with so much time between two records of a refusal that there is one of each."""
    monkeypatch.setattr(denials, "LINE_INTERVAL", 3600.0)
    monkeypatch.setattr(denials, "EVENT_INTERVAL", 3600.0)
    async with serving(pool) as api:
        yield api


async def refusals(api: Api) -> list[tuple[object, object, object]]:
    """Return what was recorded of refusals, oldest first: action, user and detail."""
    rows = await sql(api.pool, "select * from audit_events where action ~ 'refuse|deny' order by id")
    return [(row["action"], row["actor_id"], json.loads(row["detail"])) for row in rows]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the web logged."""
    return [record.getMessage() for record in caplog.records if record.name == "hango.web"]


async def test_refused_keys_leave_a_trace_and_no_flood(
    long_intervals: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused keys are logged, and audited where the tenant is known, once in a while (S-L3)."""
    api = long_intervals
    revoked, disabled = api.acme.users[Role.MEMBER], api.acme.users[Role.ADMIN]
    await sql(api.pool, "update api_keys set revoked_at = now() where user_id = $1", revoked.id)
    await sql(api.pool, "update users set status = 'disabled' where id = $1", disabled.id)
    for key in (None, "hgo_unknown", "no key", *([api.keys[revoked.id]] * 3), api.keys[disabled.id]):
        async with api.client(key=key) as client:
            assert is_problem(await client.get("/v1/me"), 401, "unauthenticated")
    assert await refusals(api) == [
        ("key.refuse", revoked.id, {"reason": "revoked"}),
        ("key.refuse", disabled.id, {"reason": "of a user who is disabled"}),
    ]
    assert lines_of(caplog) == ["a key was refused (unknown), from 127.0.0.1"]
    assert await api.count("api_keys", f"user_id = '{disabled.id}' and last_used_at is not null") == 0


async def test_denied_access_leaves_a_trace_and_no_flood(
    long_intervals: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Each user who asks for what only others may do is on record, once in a while (S-L3)."""
    api = long_intervals
    member, admin, owner = (api.acme.users[role] for role in Role)
    for _ in range(3):
        async with api.client(member) as client:
            assert (await client.get("/v1/users")).status_code == 403
        async with api.client(admin) as client:
            assert (await client.post(f"/v1/users/{owner.id}/keys")).status_code == 403
    assert await refusals(api) == [
        ("access.deny", member.id, {"operation": "list_users"}),
        ("access.deny", admin.id, {"operation": "create_key"}),
    ]
    assert lines_of(caplog) == [f"access was denied (member, user {member.id}), from 127.0.0.1"]
