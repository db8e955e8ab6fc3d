"""Agents: written by administrators, read by all of the tenant, checked when they are stored."""

from __future__ import annotations

import hashlib

import pytest
import trio

from hango.domain import Role, new_id
from hango.store.agents import Agents, NewAgent

from support.api import Api, is_problem
from support.locks import row_held, until_waiting

COACH = {"slug": "coach", "provider": "fake", "model": "model-1"}
GATE = {"verify": "all_todos_done", "max_attempts": 3}

LIMITS = ("max_iterations", "tool_timeout", "run_deadline", "max_tokens", "stream_retries")
OPTIONS = (
    "temperature",
    "top_p",
    "max_tokens",
    "reasoning_effort",
    "thinking_budget",
    "tool_choice",
    "parallel_tool_calls",
)


async def test_an_agent_is_stored_with_its_defaults(api: Api) -> None:
    """Only slug, provider and model are needed; the answer is what is read later."""
    async with api.as_role(Role.ADMIN) as client:
        created = await client.post("/v1/agents", json=COACH)
        read = await client.get(created.headers["location"])
    assert created.status_code == 201
    assert read.json() == created.json()
    agent = read.json()
    assert agent.pop("id") in created.headers["location"]
    assert agent.pop("created_at").endswith("Z")
    assert agent == COACH | {
        "name": "coach",
        "system_prompt": "",
        "tools": [],
        "guardrails": [],
        "completion": None,
        "limits": dict.fromkeys(LIMITS),
        "model_options": dict.fromkeys(OPTIONS) | {"stop_sequences": [], "extra": {}},
    }


async def test_everything_of_an_agent_can_be_said_and_sent_back(api: Api) -> None:
    """A whole agent is stored as it is, and what was answered is a valid change."""
    whole = COACH | {
        "name": "The Coach",
        "system_prompt": "Be brief.\u2028",
        "tools": ["http_fetch", "get_time"],
        "guardrails": ["no_shell"],
        "completion": GATE,
        "limits": dict.fromkeys(LIMITS)
        | {"tool_timeout": 1.5, "run_deadline": 60, "stream_retries": 0},
        "model_options": dict.fromkeys(OPTIONS)
        | {"top_p": 0.9, "tool_choice": "get_time", "stop_sequences": ["END"], "extra": {"seed": 7}},
    }
    async with api.as_role(Role.OWNER) as client:
        created = (await client.post("/v1/agents", json=whole)).json()
        again = {key: value for key, value in created.items() if key not in ("id", "created_at")}
        changed = await client.patch(f"/v1/agents/{created['id']}", json=again)
    assert again == whole
    assert changed.json() == created


async def test_a_gate_can_be_taken_away_again(api: Api) -> None:
    """Null is no gate."""
    async with api.as_role(Role.OWNER) as client:
        created = (await client.post("/v1/agents", json=COACH | {"completion": GATE})).json()
        changed = await client.patch(f"/v1/agents/{created['id']}", json={"completion": None})
    assert created["completion"] == GATE
    assert changed.json()["completion"] is None


async def test_a_change_changes_only_what_it_names(api: Api) -> None:
    """PATCH replaces the fields it has, limits as a whole, and leaves the rest."""
    limits = {"max_iterations": 5, "max_tokens": 100}
    async with api.as_role(Role.ADMIN) as client:
        agent = (
            await client.post("/v1/agents", json=COACH | {"tools": ["get_time"], "limits": limits})
        ).json()
        named = await client.patch(f"/v1/agents/{agent['id']}", json={"name": "Trainer", "tools": []})
        limited = await client.patch(f"/v1/agents/{agent['id']}", json={"limits": {"max_tokens": 7}})
    assert named.status_code == 200
    assert named.json() == agent | {"name": "Trainer", "tools": []}
    assert limited.json()["limits"] == agent["limits"] | {"max_iterations": None, "max_tokens": 7}


async def test_changes_at_once_do_not_undo_each_other(api: Api) -> None:
    """A name given and a prompt given at the same time are both there."""
    agent = api.acme.agent
    bodies = [{"name": "Trainer"}, {"system_prompt": "Be brief."}]

    async def change(body: dict[str, str]) -> None:
        async with api.as_role(Role.OWNER) as owner:
            assert (await owner.patch(f"/v1/agents/{agent.id}", json=body)).is_success

    async with trio.open_nursery() as nursery, row_held(api.pool, "agents", agent.id):
        for body in bodies:
            nursery.start_soon(change, body)
        await until_waiting(api.pool, 2)
    assert await api.count("agents", "name = 'Trainer' and system_prompt = 'Be brief.'") == 1


async def test_what_is_stored_is_not_checked_again(api: Api) -> None:
    """An agent from before a rule, or of a provider that is not here now, can still be changed."""
    before = NewAgent("old", "\u200b" * 300, "gone", "m" * 300, tools=("gone",))
    stored = await Agents(api.pool).create(api.acme.tenant.id, before, actor=None)
    async with api.as_role(Role.ADMIN) as client:
        changed = await client.patch(f"/v1/agents/{stored.id}", json={"system_prompt": "Be brief."})
    assert changed.status_code == 200
    assert changed.json()["model"] == "m" * 300
    assert changed.json()["system_prompt"] == "Be brief."


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slug": None}, "slug"),
        ({"slug": ""}, "slug"),
        ({"slug": "Coach"}, "slug"),
        ({"slug": "-coach"}, "slug"),
        ({"slug": "coach\n"}, "slug"),
        ({"slug": "c" * 64}, "slug"),
        ({"name": " "}, "name"),
        ({"name": "n" * 201}, "name"),
        ({"name": "Co\u202each"}, "name"),
        ({"model": "m" * 201}, "model"),
        ({"provider": "nowhere"}, "provider"),
        ({"provider": ["fake"]}, "provider"),
        ({"model": ""}, "model"),
        ({"model": 4}, "model"),
        ({"system_prompt": None}, "system_prompt"),
        ({"tools": "get_time"}, "tools"),
        ({"tools": ["get_time", "rm"]}, "tools.1"),
        ({"tools": ["get_time", "get_time"]}, "tools"),
        ({"tools": [{}]}, "tools.0"),
        ({"guardrails": ["no_secrets"]}, "guardrails.0"),
        ({"guardrails": ["no_shell", "no_shell"]}, "guardrails"),
        ({"completion": "all_todos_done"}, "completion"),
        ({"completion": {}}, "completion.verify"),
        ({"completion": {"verify": "looks_good", "max_attempts": 3}}, "completion.verify"),
        ({"completion": {"verify": "all_todos_done"}}, "completion.max_attempts"),
        ({"completion": GATE | {"max_attempts": 0}}, "completion.max_attempts"),
        ({"completion": GATE | {"max_attempts": True}}, "completion.max_attempts"),
        ({"completion": GATE | {"max_attempts": 2.0}}, "completion.max_attempts"),
        ({"completion": GATE | {"max_attempts": 2**31}}, "completion.max_attempts"),
        ({"completion": GATE | {"verifier": "all_todos_done"}}, "completion.verifier"),
        ({"limits": []}, "limits"),
        ({"limits": None}, "limits"),
        ({"limits": {"max_iterations": 0}}, "limits.max_iterations"),
        ({"limits": {"max_iterations": 2**31}}, "limits.max_iterations"),
        ({"limits": {"max_iterations": 1.5}}, "limits.max_iterations"),
        ({"limits": {"tool_timeout": 0}}, "limits.tool_timeout"),
        ({"limits": {"run_deadline": "1h"}}, "limits.run_deadline"),
        ({"limits": {"max_tokens": True}}, "limits.max_tokens"),
        ({"limits": {"stream_retries": -1}}, "limits.stream_retries"),
        ({"limits": {"max_cost": 1}}, "limits.max_cost"),
        ({"color": "blue"}, "color"),
        ({"id": str(new_id())}, "id"),
        ({"tenant_id": str(new_id())}, "tenant_id"),
    ],
)
async def test_a_wrong_agent_is_refused_by_its_field(
    api: Api, change: dict[str, object], field: str
) -> None:
    """What an agent names must be registered and its limits sane, at creation and at every change."""
    async with api.as_role(Role.ADMIN) as client:
        created = await client.post("/v1/agents", json=COACH | change)
        changed = await client.patch(f"/v1/agents/{api.acme.agent.id}", json=change)
        unchanged = await client.get(f"/v1/agents/{api.acme.agent.id}")
    assert is_problem(created, 422, "invalid", field)
    assert is_problem(changed, 422, "invalid", field)
    assert unchanged.json()["slug"] == "helper"
    assert await api.count("agents", "slug = 'coach'") == 0


@pytest.mark.parametrize("field", ["slug", "provider", "model"])
async def test_what_an_agent_must_have_is_asked_for(api: Api, field: str) -> None:
    """A missing field is named."""
    body = {key: value for key, value in COACH.items() if key != field}
    async with api.as_role(Role.ADMIN) as client:
        assert is_problem(await client.post("/v1/agents", json=body), 422, "invalid", field)


async def test_a_slug_is_taken_once(api: Api) -> None:
    """A second agent of a slug is a conflict, at creation and by change; tenants do not meet."""
    async with api.as_role(Role.ADMIN) as client:
        first = await client.post("/v1/agents", json=COACH)
        second = await client.post("/v1/agents", json=COACH)
        moved = await client.patch(f"/v1/agents/{api.acme.agent.id}", json={"slug": "coach"})
    async with api.as_role(Role.ADMIN, api.globex) as client:
        elsewhere = await client.post("/v1/agents", json=COACH)
    assert (first.status_code, elsewhere.status_code) == (201, 201)
    assert is_problem(second, 409, "already_exists")
    assert is_problem(moved, 409, "already_exists")


@pytest.mark.rule(13)
async def test_a_member_reads_agents_and_writes_none(api: Api) -> None:
    """A member gets one 403 for every write, whatever its body, agent or no agent."""
    known, unknown = f"/v1/agents/{api.acme.agent.id}", f"/v1/agents/{new_id()}"
    async with api.as_role(Role.MEMBER) as client:
        refused = [
            await client.post("/v1/agents", json=COACH),
            await client.post("/v1/agents", content=b"{"),
            await client.patch(known, json={"name": "Mine"}),
            await client.patch(unknown, json={"name": "Mine"}),
        ]
        read = await client.get(known)
        listed = await client.get("/v1/agents")
    for response in refused:
        assert is_problem(response, 403, "forbidden")
        assert response.content == refused[0].content
    assert read.json()["name"] == "Helper"
    assert [agent["id"] for agent in listed.json()["data"]] == [str(api.acme.agent.id)]


@pytest.mark.rule(13)
async def test_another_tenants_agent_is_unknown(api: Api) -> None:
    """Reading, changing and using another tenant's agent is the 404 of an id that is not (F01)."""
    foreign, unknown = f"/v1/agents/{api.globex.agent.id}", f"/v1/agents/{new_id()}"
    async with api.as_role(Role.OWNER) as client:
        answers = [
            await client.get(unknown),
            await client.get(foreign),
            await client.patch(foreign, json={"name": "Mine"}),
            await client.patch(foreign, content=b"{"),
            await client.post("/v1/sessions", json={"agent_id": str(api.globex.agent.id)}),
            await client.post("/v1/sessions", json={"agent_id": str(new_id())}),
            await client.post("/v1/sessions", json={"agent_id": "no id"}),
        ]
        listed = await client.get("/v1/agents")
    for response in answers:
        assert is_problem(response, 404, "not_found")
        assert response.content == answers[0].content
    assert str(api.globex.agent.id) not in listed.text
    assert await api.count("sessions") == 0


async def test_every_change_of_an_agent_is_on_record(api: Api) -> None:
    """Creating and changing write an audit row with who did it; a refusal writes none."""
    admin = api.acme.users[Role.ADMIN]
    before = await api.count("audit_events")
    async with api.client(admin) as client:
        agent = (await client.post("/v1/agents", json=COACH)).json()
        await client.patch(f"/v1/agents/{agent['id']}", json={"name": "Trainer"})
        await client.patch(f"/v1/agents/{agent['id']}", json={"name": ""})
        await client.post("/v1/agents", json=COACH)
    assert await api.count("audit_events") == before + 2
    mine = f"actor_id = '{admin.id}' and target_id = '{agent['id']}'"
    assert await api.count("audit_events", mine) == 2


async def test_what_changed_of_an_agent_is_on_record_without_its_text(api: Api) -> None:
    """S-L4: a length and a digest of each field that changed, and nothing of the others."""
    prompt = "Be brief, äöü."
    async with api.as_role(Role.OWNER) as client:
        agent = (await client.post("/v1/agents", json=COACH)).json()
        bodies: list[dict[str, object]] = [
            {"system_prompt": prompt, "model": "model-1"},
            {"completion": GATE},
            {"completion": None, "tools": ["get_time"]},
            {"name": "coach"},
        ]
        for body in bodies:
            assert (await client.patch(f"/v1/agents/{agent['id']}", json=body)).is_success
        trail = (await client.get("/v1/audit-events?limit=4")).json()["data"]
    named, gone, gated, prompted = (event["detail"] for event in trail)
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    assert prompted == {"system_prompt": {"length": len(prompt), "sha256": digest}}
    assert set(gated) == {"completion"}
    assert gone["completion"] == {"length": None, "sha256": None}
    assert set(gone) == {"completion", "tools"}
    assert named == {}


async def test_model_options_are_stored_and_replaced_as_a_whole(api: Api) -> None:
    """What is written is read; a change of something else keeps them; an empty object removes them."""
    options = {"temperature": 0.2, "tool_choice": "get_time", "stop_sequences": ["END"]}
    async with api.as_role(Role.ADMIN) as client:
        created = await client.post("/v1/agents", json=COACH | {"model_options": options})
        place = created.headers["location"]
        renamed = await client.patch(place, json={"name": "Coach"})
        replaced = await client.patch(place, json={"model_options": {"top_p": 1}})
        removed = await client.patch(place, json={"model_options": {}})
    assert created.status_code == 201
    assert renamed.json()["model_options"] == created.json()["model_options"]
    assert created.json()["model_options"].items() >= options.items()
    assert replaced.json()["model_options"].items() >= {"temperature": None, "top_p": 1.0}.items()
    assert not any(removed.json()["model_options"].values())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model_options": {"temperature": 3}}, "model_options.temperature"),
        ({"model_options": {"reasoning_effort": "huge"}}, "model_options.reasoning_effort"),
        ({"model_options": {"tool_choice": "no_such_tool"}}, "model_options.tool_choice"),
        ({"model_options": {"colour": 1}}, "model_options.colour"),
        ({"model_options": {"extra": {"n": 2}}, "provider": "openai"}, "model_options.extra.n"),
        ({"model_options": {"top_p": 0.5}, "provider": "demo"}, "model_options.top_p"),
        ({"provider": "openai"}, "model_options.thinking_budget"),
        ({"tools": ["http_fetch"]}, "model_options.tool_choice"),
    ],
    ids=str,
)
async def test_an_option_that_cannot_be_sent_is_refused_when_it_is_written(
    api: Api, change: dict[str, object], field: str
) -> None:
    """By its bounds, by the adapter of the provider, and when provider or tools change under it."""
    options = {"thinking_budget": 2000, "tool_choice": "get_time"}
    async with api.as_role(Role.ADMIN) as client:
        created = await client.post("/v1/agents", json=COACH | {"model_options": options})
        refused = await client.patch(created.headers["location"], json=change)
        kept = await client.get(created.headers["location"])
    assert is_problem(refused, 422, "invalid", field)
    assert kept.json() == created.json()
