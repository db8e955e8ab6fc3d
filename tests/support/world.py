"""A small populated database to test in: one tenant, its people, an agent, and what they do."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import attrs

from hango.domain import (
    AgentDefinition,
    Block,
    Limits,
    Role,
    Run,
    Scope,
    Session,
    Tenant,
    TextBlock,
    User,
    new_id,
)
from hango.store.accounts import Accounts
from hango.store.agents import Agents, NewAgent
from hango.store.pool import Pool
from hango.store.queue import RunQueue
from hango.store.rows import Row
from hango.store.runs import Runs
from hango.store.sessions import Sessions


@attrs.frozen
class World:
    """A tenant with one user of each role, and an agent; more is made on demand."""

    pool: Pool
    tenant: Tenant
    users: dict[Role, User]
    agent: AgentDefinition

    @property
    def accounts(self) -> Accounts:
        """The tenant's accounts."""
        return Accounts(self.pool)

    @property
    def sessions(self) -> Sessions:
        """The tenant's sessions."""
        return Sessions(self.pool)

    @property
    def runs(self) -> Runs:
        """The tenant's runs."""
        return Runs(self.pool)

    def scope(self, role: Role = Role.OWNER) -> Scope:
        """Act as the user of that role."""
        return scope_of(self.users[role])

    async def session(self, role: Role = Role.OWNER) -> Session:
        """Open a session as the user of that role."""
        return await self.sessions.create(self.scope(role), self.agent.id)

    async def run(
        self, session: Session, text: str = "hello", *, role: Role = Role.OWNER, max_live: int = 1000
    ) -> Run:
        """Queue a run as the user of that role."""
        said: tuple[Block, ...] = (TextBlock(text),)
        return await self.runs.create(self.scope(role), session.id, said, max_live=max_live)

    async def reload(self, run: Run) -> Run:
        """Read a run as it is now."""
        return await self.runs.get(self.scope(), run.id)

    def queue(
        self, *, owner_id: UUID | None = None, lease_ttl: float = 90.0, max_reclaims: int = 10
    ) -> RunQueue:
        """Stand for a process: a queue with an owner of its own."""
        return RunQueue(self.pool, owner_id or new_id(), lease_ttl, max_reclaims)

    async def lapse(self, run: Run) -> None:
        """Let the run's lease run out."""
        await sql(
            self.pool,
            "update runs set lease_expires_at = now() - interval '1 second' where id = $1",
            run.id,
        )


def scope_of(user: User) -> Scope:
    """Act as *user*."""
    return Scope(user.tenant_id, user.id, user.role)


async def make_world(
    pool: Pool, slug: str = "acme", *, provider: str = "fake", limits: Limits | None = None
) -> World:
    """Create a tenant named *slug* with all that a test needs to begin."""
    accounts = Accounts(pool)
    tenant = await accounts.create_tenant(slug, slug.title())
    users = {
        role: await accounts.create_user(tenant.id, f"{role}@{slug}.test", role, actor=None)
        for role in Role
    }
    new = NewAgent("helper", "Helper", provider, "model-1", limits=limits or Limits())
    agent = await Agents(pool).create(tenant.id, new, actor=None)
    return World(pool, tenant, users, agent)


async def sql(pool: Pool, text: str, *arguments: object) -> Sequence[Row]:
    """Run a statement of the test's own."""

    async def fetch(connection: object) -> Sequence[Row]:
        return await connection.fetch(text, *arguments)  # type: ignore[attr-defined, no-any-return]  # asyncpg's

    return await pool.unit(fetch)
