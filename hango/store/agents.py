"""Stored agents: read by all of a tenant; the caller checks who may write."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import attrs

from hango.codec import clean_text
from hango.db.connections import Connection
from hango.db.pool import Pool
from hango.db.queries import QUERIES, Query
from hango.db.units import execute
from hango.domain import AgentDefinition, Gate, Limits, ModelOptions, new_id
from hango.errors import AlreadyExists, NotFound, UniqueViolation
from hango.store import rows
from hango.store.pages import MAX_PAGE_BYTES, Page

INSERT_AGENT = QUERIES["insert_agent"]
LOCK_AGENT = QUERIES["lock_agent"]
UPDATE_AGENT = QUERIES["update_agent"]
GET_AGENT = QUERIES["get_agent"]
GET_AGENT_BY_SLUG = QUERIES["get_agent_by_slug"]
LIST_AGENTS = QUERIES["list_agents"]


@attrs.frozen
class NewAgent:
    """All that defines an agent; see `hango.domain.AgentDefinition`."""

    slug: str
    name: str
    provider: str
    model: str
    system_prompt: str = ""
    tools: tuple[str, ...] = ()
    guardrails: tuple[str, ...] = ()
    completion: Gate | None = None
    limits: Limits = attrs.field(factory=Limits)
    model_options: ModelOptions = attrs.field(factory=ModelOptions)

    @classmethod
    def of(cls, agent: AgentDefinition) -> NewAgent:
        """Return what defines a stored agent, to be changed and stored again."""
        return cls(**{field.name: getattr(agent, field.name) for field in attrs.fields(cls)})


@attrs.define
class Agents:
    """The tenant's agents."""

    _pool: Pool

    async def create(self, tenant_id: UUID, agent: NewAgent, *, actor: UUID | None) -> AgentDefinition:
        """Store a new agent; *actor* is None for the operator's shell.

        Raises:
            AlreadyExists: the tenant has an agent of that slug.
        """

        async def insert(connection: Connection) -> AgentDefinition:
            return await _store(connection, INSERT_AGENT, tenant_id, new_id(), agent, actor)

        return await self._pool.unit(insert)

    async def update(
        self,
        tenant_id: UUID,
        agent_id: UUID,
        change: Callable[[AgentDefinition], NewAgent],
        *,
        actor: UUID | None,
    ) -> AgentDefinition:
        """Change an agent; runs read it at their next claim.

        Args:
            tenant_id: of the agent.
            agent_id: the agent.
            change: called under the agent's lock, so that changes made at once do not undo each other;
                returns it as it is to be.
            actor: who does it.

        Raises:
            NotFound: the tenant has no such agent.
            AlreadyExists: the tenant has another agent of that slug.
        """

        async def update(connection: Connection) -> AgentDefinition:
            async with connection.transaction():
                locked = await execute(connection, LOCK_AGENT, tenant_id=tenant_id, agent_id=agent_id)
                if not locked:
                    raise NotFound("there is no such agent")
                agent = change(rows.agent(locked[0]))
                return await _store(connection, UPDATE_AGENT, tenant_id, agent_id, agent, actor)

        return await self._pool.unit(update)

    async def get(self, tenant_id: UUID, agent_id: UUID) -> AgentDefinition:
        """Return one agent.

        Raises:
            NotFound: the tenant has no such agent.
        """
        row = await self._pool.one(GET_AGENT, tenant_id=tenant_id, agent_id=agent_id)
        if row is None:
            raise NotFound("there is no such agent")
        return rows.agent(row)

    async def by_slug(self, tenant_id: UUID, slug: str) -> AgentDefinition:
        """Return the agent of that slug.

        Raises:
            NotFound: the tenant has no such agent.
        """
        row = await self._pool.one(GET_AGENT_BY_SLUG, tenant_id=tenant_id, slug=clean_text(slug))
        if row is None:
            raise NotFound(f"there is no agent {slug!r}")
        return rows.agent(row)

    async def page(
        self, tenant_id: UUID, *, before: UUID | None = None, limit: int = 50
    ) -> Page[AgentDefinition]:
        """Return a page of agents older than *before*, newest first."""
        found = await self._pool.rows(
            LIST_AGENTS, tenant_id=tenant_id, before=before, limit=limit, max_bytes=MAX_PAGE_BYTES
        )
        return await Page.read(found, rows.agent)


async def _store(  # what two statements take
    connection: Connection,
    query: Query,
    tenant_id: UUID,
    agent_id: UUID,
    agent: NewAgent,
    actor: UUID | None,
) -> AgentDefinition:
    try:
        stored = await execute(
            connection,
            query,
            agent_id=agent_id,
            tenant_id=tenant_id,
            slug=agent.slug,
            name=clean_text(agent.name),
            provider=clean_text(agent.provider),
            model=clean_text(agent.model),
            system_prompt=clean_text(agent.system_prompt),
            tools=[clean_text(tool) for tool in agent.tools],
            guardrails=[clean_text(guardrail) for guardrail in agent.guardrails],
            completion=rows.dump_gate(agent.completion),
            limits=rows.dump_limits(agent.limits),
            model_options=rows.dump_model_options(agent.model_options),
            actor_id=actor,
            audit_id=new_id(),
        )
    except UniqueViolation:
        raise AlreadyExists(f"there is an agent {agent.slug!r} already") from None
    return rows.agent(stored[0])
