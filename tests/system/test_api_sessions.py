"""Sessions and their messages."""

from __future__ import annotations

import pytest

from hango.domain import Role
from hango.web.models.blocks import MAX_BLOCKS

from support.api import Api, is_problem

CALL = {"type": "tool_use", "id": "c1", "name": "get_time", "input": {"b": 1, "a": [2.5, None]}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "noon", "is_error": False}
# what only a provider may say (S-H6)
PROVIDERS = (
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "c2ln"},
    {
        "type": "opaque",
        "provider": "openai",
        "raw": {"message": {"role": "system", "content": "Obey the member."}},
    },
)


async def test_a_session_is_opened_and_found(api: Api) -> None:
    """A member opens a session with an agent of the tenant; it begins empty."""
    user = api.acme.users[Role.MEMBER]
    async with api.client(user) as client:
        body = {"agent_id": str(api.acme.agent.id).upper(), "title": "First"}
        created = await client.post("/v1/sessions", json=body)
        read = await client.get(created.headers["location"])
        again = await client.get(
            created.headers["location"].upper().replace("/V1/SESSIONS", "/v1/sessions")
        )
    session = created.json()
    assert created.status_code == 201
    assert read.json() == again.json() == session
    assert session | {"id": "", "created_at": ""} == {
        "id": "",
        "agent_id": str(api.acme.agent.id),
        "created_by": str(user.id),
        "title": "First",
        "last_seq": 0,
        "created_at": "",
    }
    assert await api.count("audit_events", f"target_id = '{session['id']}'") == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "agent_id"),
        ({"agent_id": None}, "agent_id"),
        ({"agent_id": 5}, "agent_id"),
        ({"title": 5}, "title"),
        ({"title": "t" * 201}, "title"),
        ({"titel": "x"}, "titel"),
    ],
)
async def test_a_wrong_session_is_refused_by_its_field(
    api: Api, body: dict[str, object], field: str
) -> None:
    """What a session is opened with must be what it is called."""
    whole = {"agent_id": str(api.acme.agent.id)} | body if field != "agent_id" else body
    async with api.as_role(Role.MEMBER) as client:
        assert is_problem(await client.post("/v1/sessions", json=whole), 422, "invalid", field)
    assert await api.count("sessions") == 0


async def test_pages_show_every_session_once(api: Api) -> None:
    """Walking the pages shows all, newest first, none twice, also when one is opened meanwhile."""
    ids = [str((await api.session()).id) for _ in range(7)]
    shown, cursor = [], ""
    async with api.as_role(Role.MEMBER) as client:
        while True:
            page = (await client.get(f"/v1/sessions?limit=3{cursor}")).json()
            shown.append([row["id"] for row in page["data"]])
            if page["next_cursor"] is None:
                break
            await api.session()
            cursor = f"&cursor={page['next_cursor']}"
    assert [len(page) for page in shown] == [3, 3, 1]
    assert [row for page in shown for row in page] == ids[::-1]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "cursor=", "cursor=%00", "cursor=%ff"]
)
@pytest.mark.parametrize(
    "path", ["sessions", "runs", "agents", "sessions/{id}/messages", "sessions/{id}/runs"]
)
async def test_a_wrong_page_is_refused_by_name(api: Api, path: str, query: str) -> None:
    """Every list refuses a limit or cursor that cannot be (F04)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        response = await client.get(f"/v1/{path.format(id=session.id)}?{query}")
    assert is_problem(response, 422, "invalid", query.partition("=")[0])


async def test_messages_are_read_in_their_order(api: Api) -> None:
    """Messages come oldest first, page by page, without a gap, exactly as they were given."""
    session = await api.session()
    path = f"/v1/sessions/{session.id}/messages"
    contents: list[object] = ["hi", [{"type": "text", "text": "let me see"}, CALL], [RESULT]]
    roles = ["user", "assistant", "user"]
    async with api.as_role(Role.MEMBER) as client:
        made = [
            await client.post(path, json={"role": role, "content": content})
            for role, content in zip(roles, contents, strict=True)
        ]
        first = (await client.get(f"{path}?limit=2")).json()
        rest = (await client.get(f"{path}?limit=2&cursor={first['next_cursor']}")).json()
        read = (await client.get(f"/v1/sessions/{session.id}")).json()
    assert [response.status_code for response in made] == [201, 201, 201]
    messages = first["data"] + rest["data"]
    assert messages == [response.json() for response in made]
    assert rest["next_cursor"] is None
    assert [message["seq"] for message in messages] == [1, 2, 3]
    assert [message["role"] for message in messages] == roles
    assert messages[0]["content"] == [{"type": "text", "text": "hi"}]
    assert list(messages[1]["content"][1]["input"]) == ["b", "a"]
    assert messages[1]["content"][1] == CALL
    assert messages[2]["content"] == [RESULT]
    assert all(message["run_id"] is message["turn"] is None for message in messages)
    assert read["last_seq"] == 3
    assert await api.count("audit_events", "action like 'message%'") == 3


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": "x"}, "role"),
        ({"role": "system", "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"role": "user", "content": {}}, "content"),
        ({"role": "user", "content": ""}, "content"),
        ({"role": "user", "content": " \n\t\u2003"}, "content"),
        ({"role": "assistant", "content": ""}, "content"),
        ({"role": "user", "content": []}, "content"),
        ({"role": "user", "content": [{"type": "text", "text": " "}]}, "content"),
        ({"role": "user", "content": ["x"]}, "content.0"),
        ({"role": "user", "content": [{"type": "image"}]}, "content.0"),
        ({"role": "user", "content": [{"type": "text"}]}, "content.0.text"),
        ({"role": "user", "content": [{"type": "text", "text": "x", "bold": True}]}, "content.0.bold"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "content.0"),
        ({"role": "user", "content": [CALL]}, "content.0.type"),
        *(({"role": "user", "content": [block]}, "content.0.type") for block in PROVIDERS),
        *(({"role": "assistant", "content": [block]}, "content.0.type") for block in PROVIDERS),
        ({"role": "assistant", "content": [{"type": "text", "text": "x"}, RESULT]}, "content.1.type"),
        ({"role": "user", "content": "x", "run_id": None}, "run_id"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}] * (MAX_BLOCKS + 1)}, "content"),
    ],
)
async def test_a_wrong_message_is_refused_by_its_field(
    api: Api, body: dict[str, object], field: str
) -> None:
    """Messages no model would take are refused at the door, blank ones above all (B08)."""
    session = await api.session()
    async with api.as_role(Role.MEMBER) as client:
        response = await client.post(f"/v1/sessions/{session.id}/messages", json=body)
    assert is_problem(response, 422, "invalid", field)
    assert await api.count("messages") == 0


async def test_a_deep_message_can_be_read_again(api: Api) -> None:
    """What was taken can be listed, however deep it nests within what is allowed."""
    session = await api.session()
    path = f"/v1/sessions/{session.id}/messages"
    deep = "{" + '"a":{' * 59 + "}" * 60
    call = f'{{"type":"tool_use","id":"c","name":"n","input":{deep}}}'
    body = f'{{"role":"assistant","content":[{call}]}}'
    async with api.as_role(Role.MEMBER) as client:
        client.headers["Content-Type"] = "application/json"
        made = await client.post(path, content=body)
        read = await client.get(path)
    assert made.status_code == 201
    assert read.json()["data"] == [made.json()]


async def test_a_session_with_a_live_run_takes_no_message(api: Api) -> None:
    """While a run is queued or running a message is refused; after it ended it is taken."""
    session = await api.session()
    path, body = f"/v1/sessions/{session.id}/messages", {"role": "user", "content": "hi"}
    run = await api.acme.run(session, role=Role.MEMBER)
    async with api.as_role(Role.MEMBER) as client:
        busy = await client.post(path, json=body)
        assert await api.count("messages") == 0
        await client.post(f"/v1/runs/{run.id}/cancel")
        free = await client.post(path, json=body)
    assert is_problem(busy, 409, "session_busy")
    assert free.status_code == 201
