"""Users, keys and the audit trail: what admins do, and what only owners do."""

from __future__ import annotations

import json

import httpx
import pytest
import trio

from hango.domain import Role, User, UserStatus
from hango.store.accounts import Accounts
from hango.testing.plugin import sql

from support.api import Api, is_problem
from support.locks import row_held, until_waiting


async def second_owner(api: Api) -> User:
    """Let another owner into acme."""
    accounts, tenant = Accounts(api.pool), api.acme.tenant
    user = await accounts.create_user(tenant.id, "second@acme.test", Role.OWNER, actor=None)
    api.keys[user.id] = (await accounts.create_key(tenant.id, user.id, actor=None)).key
    return user


async def test_somebody_is_let_in_and_out_again(api: Api) -> None:
    """A new user acts with the key made for them, until the key is revoked or they are disabled."""
    async with api.as_role(Role.ADMIN) as admin:
        made = await admin.post("/v1/users", json={"email": "ada@acme.test"})
        path = made.headers["location"]
        keys = [(await admin.post(f"{path}/keys")).json() for _ in range(2)]
        assert await status_with(api, keys[0]["key"]) == 200
        gone = await admin.delete(f"{path}/keys/{keys[0]['id']}")
        assert await status_with(api, keys[0]["key"]) == 401
        assert await status_with(api, keys[1]["key"]) == 200
        disabled = await admin.patch(path, json={"status": "disabled"})
        assert await status_with(api, keys[1]["key"]) == 401
        read = await admin.get(path)
    assert (made.status_code, gone.status_code, gone.content) == (201, 204, b"")
    assert "content-type" not in gone.headers
    assert made.json() | {"id": "", "created_at": ""} == {
        "id": "",
        "tenant_id": str(api.acme.tenant.id),
        "email": "ada@acme.test",
        "role": "member",
        "status": "active",
        "created_at": "",
    }
    assert read.json() == disabled.json() == made.json() | {"status": "disabled"}


async def status_with(api: Api, key: str) -> int:
    """Return what a key is worth."""
    async with api.client(key=key) as client:
        return (await client.get("/v1/me")).status_code


async def test_a_key_is_shown_once(api: Api) -> None:
    """The text of a key is in the answer that made it, and nowhere else, the database included."""
    member = api.acme.users[Role.MEMBER]
    path = f"/v1/users/{member.id}/keys"
    async with api.as_role(Role.ADMIN) as admin:
        made = (await admin.post(path)).json()
        listed = await admin.get(path)
        await admin.delete(f"{path}/{made['id']}")
        revoked = (await admin.get(path)).json()["data"][0]
        trail = await admin.get("/v1/audit-events")
    stored = await sql(api.pool, "select row_to_json(k)::text as row from api_keys as k")
    assert list(made) == ["id", "user_id", "key"]
    assert listed.json()["data"][0] == {
        "id": made["id"],
        "user_id": str(member.id),
        "prefix": made["key"][:10],
        "revoked_at": None,
        "last_used_at": None,
        "created_at": revoked["created_at"],
    }
    assert revoked["revoked_at"]
    for text in (listed.text, trail.text, *(row["row"] for row in stored)):
        assert made["key"] not in text


async def test_revoking_again_changes_nothing(api: Api) -> None:
    """A key that has ended stays as it ended, and only the end is on record."""
    path = f"/v1/users/{api.acme.users[Role.MEMBER].id}/keys"
    async with api.as_role(Role.ADMIN) as admin:
        made = (await admin.post(path)).json()
        answers = [await admin.delete(f"{path}/{made['id']}") for _ in range(2)]
    assert [response.status_code for response in answers] == [204, 204]
    assert await api.count("audit_events", "action = 'key.revoke'") == 1


async def test_a_key_is_only_found_at_its_user(api: Api) -> None:
    """The keys of a user are that user's: another's cannot be revoked there."""
    member, admin_user = (api.acme.users[role] for role in (Role.MEMBER, Role.ADMIN))
    async with api.as_role(Role.OWNER) as owner:
        made = (await owner.post(f"/v1/users/{member.id}/keys")).json()
        wrong = await owner.delete(f"/v1/users/{admin_user.id}/keys/{made['id']}")
    assert is_problem(wrong, 404, "not_found")
    assert await status_with(api, made["key"]) == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "email"),
        ({"email": None}, "email"),
        ({"email": 5}, "email"),
        ({"email": ""}, "email"),
        ({"email": "ada"}, "email"),
        ({"email": "@acme.test"}, "email"),
        ({"email": "ada@"}, "email"),
        ({"email": "ada@acme@test"}, "email"),
        ({"email": "ada lovelace@acme.test"}, "email"),
        ({"email": " ada@acme.test"}, "email"),
        ({"email": "ada@acme.test\n"}, "email"),
        ({"email": "ada\u00a0@acme.test"}, "email"),
        ({"email": "ada\x00@acme.test"}, "email"),
        ({"email": "ada\x1b[31m@acme.test"}, "email"),
        ({"email": "ada\u202e@acme.test"}, "email"),
        ({"email": "\ud800@acme.test"}, "email"),
        ({"email": "a" * 245 + "@acme.test"}, "email"),
        ({"email": "ada@acme.test;drop"}, "email"),
        ({"email": "ada@ac\u200bme.test"}, "email"),
        ({"role": "root"}, "role"),
        ({"role": None}, "role"),
        ({"role": "Owner"}, "role"),
        ({"status": "disabled"}, "status"),
        ({"tenant_id": "x"}, "tenant_id"),
    ],
)
async def test_a_wrong_user_is_refused_by_the_field(
    api: Api, body: dict[str, object], field: str
) -> None:
    """An address is one, a role is known, and nothing else can be said of a new user."""
    whole = {"email": "ada@acme.test"} | body if field != "email" else body
    async with api.as_role(Role.OWNER) as owner:
        owner.headers["Content-Type"] = "application/json"
        refused = await owner.post("/v1/users", content=json.dumps(whole))
    assert is_problem(refused, 422, "invalid", field)
    assert await api.count("users", f"tenant_id = '{api.acme.tenant.id}'") == 3


async def test_an_address_is_one_person_in_a_tenant(api: Api) -> None:
    """An address taken, however it is written, is refused; in another tenant it is free (N27)."""
    async with api.as_role(Role.OWNER) as owner:
        for email in ("\u00e4@acme.test", "ada@b\u00fccher.example"):
            assert (await owner.post("/v1/users", json={"email": email})).status_code == 201
        for email in (
            "Member@ACME.test",
            "a\u0308@acme.test",
            "ada@XN--bcher-kva.example",
            "ada@B\u00dcCHER.example",
        ):
            taken = await owner.post("/v1/users", json={"email": email})
            assert is_problem(taken, 409, "already_exists")
    async with api.as_role(Role.OWNER, api.globex) as stranger:
        free = await stranger.post("/v1/users", json={"email": "member@acme.test"})
    assert free.status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "root"}, "role"),
        ({"status": "gone"}, "status"),
        ({"status": None}, "status"),
        ({"email": "new@acme.test"}, "email"),
    ],
)
async def test_a_wrong_change_is_refused_by_its_field(
    api: Api, body: dict[str, object], field: str
) -> None:
    """Only role and status can be changed."""
    member = api.acme.users[Role.MEMBER]
    async with api.as_role(Role.OWNER) as owner:
        refused = await owner.patch(f"/v1/users/{member.id}", json=body)
    assert is_problem(refused, 422, "invalid", field)
    assert await api.count("audit_events", "action = 'user.update'") == 0


@pytest.mark.parametrize("body", [{}, {"role": "member"}, {"status": "active", "role": "member"}])
async def test_a_change_to_what_is_changes_nothing(api: Api, body: dict[str, object]) -> None:
    """Asking for what a user is already answers the user, and nothing is on record."""
    member = api.acme.users[Role.MEMBER]
    async with api.as_role(Role.OWNER) as owner:
        answered = await owner.patch(f"/v1/users/{member.id}", json=body)
        read = await owner.get(f"/v1/users/{member.id}")
    assert answered.json() == read.json()
    assert await api.count("audit_events", "action = 'user.update'") == 0


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/users", {"email": "new@acme.test", "role": "owner"}),
        ("PATCH", "/v1/users/{member}", {"role": "owner"}),
        ("PATCH", "/v1/users/{admin}", {"role": "owner"}),
        ("PATCH", "/v1/users/{owner}", {"role": "member"}),
        ("PATCH", "/v1/users/{owner}", {"status": "disabled"}),
        ("PATCH", "/v1/users/{owner}", {}),
        ("PATCH", "/v1/users/{owner}", {"role": 5}),
        ("POST", "/v1/users/{owner}/keys", None),
        ("DELETE", "/v1/users/{owner}/keys/{key}", None),
    ],
)
async def test_owners_are_the_business_of_owners(
    api: Api, method: str, path: str, body: dict[str, object] | None
) -> None:
    """An admin makes and changes no owner, and no key of one, which would be the same."""
    ids = {role.value: str(user.id) for role, user in api.acme.users.items()}
    (key,) = await sql(api.pool, f"select id from api_keys where user_id = '{ids['owner']}'")  # noqa: S608  # a test's own words
    before = await api.count("audit_events")
    async with api.as_role(Role.ADMIN) as admin:
        refused = await admin.request(method, path.format(**ids, key=key["id"]), json=body)
    assert is_problem(refused, 403, "forbidden")
    assert await api.count("audit_events", "action <> 'access.deny'") == before
    assert await api.count("users", "role = 'owner' and status = 'active'") == 2
    assert await status_with(api, api.keys[api.acme.users[Role.OWNER].id]) == 200


async def test_an_owner_changes_owners(api: Api) -> None:
    """What an admin may not, an owner may: make an owner, and demote, disable and key one."""
    other = await second_owner(api)
    async with api.as_role(Role.OWNER) as owner:
        member = api.acme.users[Role.MEMBER]
        answers = [
            await owner.post("/v1/users", json={"email": "new@acme.test", "role": "owner"}),
            await owner.patch(f"/v1/users/{member.id}", json={"role": "owner"}),
            await owner.post(f"/v1/users/{other.id}/keys"),
            await owner.patch(f"/v1/users/{other.id}", json={"status": "disabled"}),
            await owner.patch(f"/v1/users/{other.id}", json={"role": "member"}),
        ]
    assert [response.status_code for response in answers] == [201, 200, 201, 200, 200]


@pytest.mark.parametrize("body", [{"role": "admin"}, {"role": "member"}, {"status": "disabled"}])
async def test_the_last_owner_stays(api: Api, body: dict[str, object]) -> None:
    """The last active owner can be neither demoted nor disabled; a disabled one does not count."""
    other = await second_owner(api)
    path = f"/v1/users/{api.acme.users[Role.OWNER].id}"
    async with api.as_role(Role.OWNER) as owner:
        assert (await owner.patch(f"/v1/users/{other.id}", json={"status": "disabled"})).is_success
        refused = await owner.patch(path, json=body)
        await owner.patch(f"/v1/users/{other.id}", json={"status": "active"})
        free = await owner.patch(path, json=body)
    assert is_problem(refused, 409, "last_owner")
    assert free.status_code == 200


async def test_two_owners_cannot_take_each_other_away(api: Api) -> None:
    """Of two owners who demote each other at once, one is refused."""
    owners = [api.acme.users[Role.OWNER], await second_owner(api)]
    answers: list[httpx.Response] = []

    async def demote(actor: User, other: User) -> None:
        async with api.client(actor) as client:
            answers.append(await client.patch(f"/v1/users/{other.id}", json={"role": "member"}))

    async with trio.open_nursery() as nursery, row_held(api.pool, "users", owners[0].id):
        nursery.start_soon(demote, owners[0], owners[1])
        nursery.start_soon(demote, owners[1], owners[0])
        await until_waiting(api.pool, 2)
    assert sorted(response.status_code for response in answers) == [200, 409]
    assert await api.count("users", f"tenant_id = '{api.acme.tenant.id}' and role = 'owner'") == 1


async def test_who_becomes_an_owner_meanwhile_is_one(api: Api) -> None:
    """An admin's change that waits for a promotion to owner is refused by what it then finds."""
    member = api.acme.users[Role.MEMBER]
    answers: list[httpx.Response] = []

    async def disable() -> None:
        async with api.as_role(Role.ADMIN) as admin:
            answers.append(await admin.patch(f"/v1/users/{member.id}", json={"status": "disabled"}))

    async with trio.open_nursery() as nursery, row_held(api.pool, "users", member.id) as execute:
        nursery.start_soon(disable)
        await until_waiting(api.pool)
        await execute("update users set role = 'owner' where id = $1", member.id)
    assert is_problem(answers[0], 403, "forbidden")
    assert await api.count("users", f"status = '{UserStatus.DISABLED}'") == 0


async def test_changes_at_once_do_not_undo_each_other(api: Api) -> None:
    """A role given and a status given at the same time are both there."""
    member = api.acme.users[Role.MEMBER]
    bodies: list[dict[str, object]] = [{"role": "admin"}, {"status": "disabled"}]

    async def change(body: dict[str, object]) -> None:
        async with api.as_role(Role.OWNER) as owner:
            assert (await owner.patch(f"/v1/users/{member.id}", json=body)).is_success

    async with trio.open_nursery() as nursery, row_held(api.pool, "users", member.id):
        for body in bodies:
            nursery.start_soon(change, body)
        await until_waiting(api.pool, 2)
    where = f"id = '{member.id}' and role = 'admin' and status = 'disabled'"
    assert await api.count("users", where) == 1


@pytest.mark.parametrize("role", ["admin", "owner"])
async def test_a_promotion_revokes_what_was_made_for_less(api: Api, role: str) -> None:
    """S-L1: an admin's key for a member does not become an owner's; asked to, it is kept."""
    member, keys = api.acme.users[Role.MEMBER], f"/v1/users/{api.acme.users[Role.MEMBER].id}/keys"
    async with api.as_role(Role.ADMIN) as admin, api.as_role(Role.OWNER) as owner:
        for keep in (False, True):
            key = (await admin.post(keys)).json()["key"]
            change = {"role": role, "keep_keys": keep}
            assert (await owner.patch(f"/v1/users/{member.id}", json=change)).is_success
            async with api.client(key=key) as holder:
                assert (await holder.get("/v1/me")).status_code == (200 if keep else 401)
            await owner.patch(f"/v1/users/{member.id}", json={"role": "member"})
            async with api.client(key=key) as holder:  # a demotion revokes nothing
                assert (await holder.get("/v1/me")).status_code == (200 if keep else 401)
    valid = f"user_id = '{member.id}' and revoked_at is null"
    assert await api.count("api_keys", valid) == 1
    revoked = await api.count("api_keys", f"user_id = '{member.id}' and revoked_at is not null")
    assert await api.count("audit_events", "action = 'key.revoke'") == revoked > 0


async def test_a_key_made_while_its_user_is_promoted_is_not_made(api: Api) -> None:
    """S-L1: the admin who asked for it may not make keys for owners."""
    member, answers = api.acme.users[Role.MEMBER], list[httpx.Response]()

    async def create() -> None:
        async with api.as_role(Role.ADMIN) as admin:
            answers.append(await admin.post(f"/v1/users/{member.id}/keys"))

    before = await api.count("api_keys", f"user_id = '{member.id}'")
    async with trio.open_nursery() as nursery, row_held(api.pool, "users", member.id) as execute:
        nursery.start_soon(create)
        await until_waiting(api.pool)
        await execute("update users set role = 'owner' where id = $1", member.id)
    assert is_problem(answers[0], 404, "not_found")
    assert await api.count("api_keys", f"user_id = '{member.id}'") == before


async def test_the_trail_is_read_newest_first(api: Api) -> None:
    """An administrator reads who did what to what, in this tenant alone."""
    admin_user, member = (api.acme.users[role] for role in (Role.ADMIN, Role.MEMBER))
    async with api.as_role(Role.ADMIN) as admin:
        made = (await admin.post("/v1/users", json={"email": "a@acme.test", "role": "admin"})).json()
        await admin.patch(f"/v1/users/{member.id}", json={"role": "admin", "keep_keys": True})
        trail = (await admin.get("/v1/audit-events?limit=2")).json()
    update, create = trail["data"]
    assert update | {"id": "", "created_at": ""} == {
        "id": "",
        "actor_id": str(admin_user.id),
        "action": "user.update",
        "target_kind": "user",
        "target_id": str(member.id),
        "detail": {"role": "admin", "status": "active"},
        "trace_id": None,
        "created_at": "",
    }
    assert (create["action"], create["target_id"]) == ("user.create", made["id"])
    async with api.as_role(Role.OWNER, api.globex) as stranger:
        assert made["id"] not in (await stranger.get("/v1/audit-events?limit=200")).text
