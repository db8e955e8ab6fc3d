"""``/v1/agents``: read by all users of the tenant, written by admins and owners.

Rule: the names an agent uses (provider, tools, guardrails, verifier) are checked when it is stored,
against what this server has registered, so that a run does not fail on them.
"""

from __future__ import annotations

import attrs
from quart import Response, request

from hango.agent import check_model_options
from hango.domain import AgentDefinition
from hango.store.agents import Agents, NewAgent
from hango.web.auth import administrator, scope
from hango.web.models.requests import AgentChangeBody, NewAgentBody, Registered
from hango.web.models.responses import AgentJson, AgentPage
from hango.web.problem import ALREADY_EXISTS, FORBIDDEN
from hango.web.route import Reply, page_route, route
from hango.web.wire import (
    json_response,
    page_response,
    read_body,
    read_id,
    read_id_cursor,
    read_limit,
)

_TAG = "agents"
# Whether the options can be sent depends on these
_BEARING_ON_OPTIONS = frozenset({"provider", "model", "tools", "model_options"})
_AGENTS, _AGENT = "/v1/agents", "/v1/agents/{agent_id}"


@attrs.frozen
class AgentRoutes:
    """The routes of agents."""

    agents: Agents
    registered: Registered

    @route(
        "POST",
        _AGENTS,
        _TAG,
        Reply(201, "The agent.", AgentJson, headers=["Location"]),
        body=NewAgentBody,
        problems=[FORBIDDEN, ALREADY_EXISTS],
    )
    async def create_agent(self) -> Response:
        """Create an agent."""
        user = administrator()
        body = await read_body(NewAgentBody, self.registered)
        wanted = _changed(NewAgent(body.slug, body.slug, body.provider, body.model), body)
        self._check_options(wanted)
        agent = await self.agents.create(user.tenant_id, wanted, actor=user.id)
        return json_response(AgentJson.of(agent), 201, {"Location": f"/v1/agents/{agent.id}"})

    @page_route(_AGENTS, _TAG, AgentPage)
    async def list_agents(self) -> Response:
        """List agents, newest first."""
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        page = await self.agents.page(scope().tenant_id, before=before, limit=limit)
        return await page_response(AgentPage, page, lambda agent: agent.id)

    @route("GET", _AGENT, _TAG, Reply(200, "The agent.", AgentJson))
    async def get_agent(self, agent_id: str) -> Response:
        """Get an agent."""
        agent = await self.agents.get(scope().tenant_id, read_id(agent_id))
        return json_response(AgentJson.of(agent))

    @route(
        "PATCH",
        _AGENT,
        _TAG,
        Reply(200, "The agent.", AgentJson),
        body=AgentChangeBody,
        problems=[FORBIDDEN, ALREADY_EXISTS],
    )
    async def update_agent(self, agent_id: str) -> Response:
        """Change an agent.

        Runs that begin, or are resumed, after this use the agent as it is then.
        """
        user = administrator()
        stored = await self.agents.get(user.tenant_id, read_id(agent_id))
        body = await read_body(AgentChangeBody, self.registered)

        def change(now: AgentDefinition) -> NewAgent:
            changed = _changed(NewAgent.of(now), body)
            if body.model_fields_set & _BEARING_ON_OPTIONS:
                self._check_options(changed)
            return changed

        agent = await self.agents.update(user.tenant_id, stored.id, change, actor=user.id)
        return json_response(AgentJson.of(agent))

    def _check_options(self, agent: NewAgent) -> None:
        provider = self.registered.made_providers.get(agent.provider)
        tools = agent.tools or self.registered.tools
        check_model_options(provider, agent.model, agent.model_options, tools)


def _changed(agent: NewAgent, body: AgentChangeBody) -> NewAgent:
    """Return *agent* with the members that were given; the others are not checked again."""
    return attrs.evolve(agent, **{name: getattr(body, name) for name in body.model_fields_set})
