"""``/v1/agents``: read by all of the tenant, written by admin and owner.

Rule: what an agent names (provider, tools, guardrails, gate) is checked when it is stored, against
what this server has registered, so that a run does not find out.  Only `hango.web` uses it.
"""

from __future__ import annotations

import re

import attrs
from quart import Blueprint, Response, request

from hango.domain import AgentDefinition, Gate, Limits
from hango.errors import InvalidInput
from hango.store.agents import Agents, NewAgent
from hango.web.auth import administrator, scope
from hango.web.shapes import agent_to_json
from hango.web.wire import (
    LONG,
    Fields,
    answer,
    page_to_json,
    read_fields,
    read_id,
    read_id_cursor,
    read_limit,
)

SLUG = "[a-z0-9][a-z0-9-]{0,62}"

# the most an agent may ask for; a process's own settings are usually far below
MOST_ITERATIONS = 1000
LONGEST_TOOL_TIMEOUT = 3600  # seconds
LONGEST_RUN_DEADLINE = 24 * 3600  # seconds
MOST_TOKENS = 10_000_000
MOST_ATTEMPTS = 100


@attrs.frozen
class Registered:
    """The names this server has registered, which agents may use."""

    providers: frozenset[str]
    tools: frozenset[str]
    guardrails: frozenset[str] = frozenset()
    verifiers: frozenset[str] = frozenset()


@attrs.frozen
class AgentRoutes:
    """The routes of agents."""

    agents: Agents
    registered: Registered

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("agents", __name__)
        routes.post("/agents")(self.create)
        routes.get("/agents")(self.list)
        routes.get("/agents/<agent_id>")(self.get)
        routes.patch("/agents/<agent_id>")(self.update)
        return routes

    async def create(self) -> Response:
        """Store a new agent."""
        user = administrator()
        wanted = read_agent(await read_fields(), self.registered)
        agent = await self.agents.create(user.tenant_id, wanted, actor=user.id)
        return answer(agent_to_json(agent), 201, {"Location": f"/v1/agents/{agent.id}"})

    async def list(self) -> Response:
        """Answer a page of agents, newest first."""
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.agents.list(scope().tenant_id, before=before, limit=limit + 1)
        return answer(page_to_json(rows, limit, agent_to_json, lambda agent: agent.id))

    async def get(self, agent_id: str) -> Response:
        """Answer one agent."""
        return answer(agent_to_json(await self.agents.get(scope().tenant_id, read_id(agent_id))))

    async def update(self, agent_id: str) -> Response:
        """Change the fields that are given; `limits` and the lists are replaced whole."""
        user = administrator()
        stored = await self.agents.get(user.tenant_id, read_id(agent_id))
        wanted = read_agent(await read_fields(), self.registered, stored)
        agent = await self.agents.update(user.tenant_id, stored.id, wanted, actor=user.id)
        return answer(agent_to_json(agent))


def read_agent(
    fields: Fields, registered: Registered, stored: AgentDefinition | None = None
) -> NewAgent:
    """Read an agent; what is missing stays as *stored*, where there is one."""
    given = _as_given(stored) if stored else {}
    fields = Fields(given | fields.members, fields.path)
    slug = _read_slug(fields)
    agent = NewAgent(
        slug=slug,
        name=fields.word("name", slug),
        provider=fields.known("provider", registered.providers),
        model=fields.word("model"),
        system_prompt=fields.text("system_prompt", "", longest=LONG),
        tools=fields.known_list("tools", registered.tools, ()),
        guardrails=fields.known_list("guardrails", registered.guardrails, ()),
        completion=_read_completion(fields, registered.verifiers),
        limits=_read_limits(fields),
    )
    fields.end()
    return agent


def _as_given(stored: AgentDefinition) -> dict[str, object]:
    shape = dict(agent_to_json(stored))
    del shape["id"], shape["created_at"]
    return shape


def _read_slug(fields: Fields) -> str:
    slug = fields.text("slug")
    if re.fullmatch(SLUG, slug) is None:
        raise InvalidInput(
            "must be 1 to 63 small letters, digits and hyphens, and not begin with a hyphen",
            field="slug",
        )
    return slug


def _read_completion(fields: Fields, verifiers: frozenset[str]) -> Gate | None:
    value = fields.take("completion", None)
    if value is None:
        return None
    given = Fields.of(value, "completion")
    verify, attempts = given.known("verify", verifiers), given.take("max_attempts")
    if type(attempts) is not int or not 1 <= attempts <= MOST_ATTEMPTS:
        message = f"must be a whole number from 1 to {MOST_ATTEMPTS}"
        raise InvalidInput(message, field="completion.max_attempts")
    given.end()
    return Gate(verify, attempts)


def _read_limits(fields: Fields) -> Limits:
    given = Fields.of(fields.take("limits", {}), "limits")
    limits = Limits(
        max_iterations=given.whole("max_iterations", MOST_ITERATIONS),
        tool_timeout=given.seconds("tool_timeout", LONGEST_TOOL_TIMEOUT),
        run_deadline=given.seconds("run_deadline", LONGEST_RUN_DEADLINE),
        max_tokens=given.whole("max_tokens", MOST_TOKENS),
    )
    given.end()
    return limits
