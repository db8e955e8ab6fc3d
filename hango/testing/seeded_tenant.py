"""A small populated database to test in: one tenant, its people, an agent, and what they do.

One rule: everything is made as the product makes it, through its stores; only a lease's end, which
would take time, may be arranged by hand.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import attrs
import trio

from hango.actors import WorkerSettings
from hango.agent import Guardrail, Provider, Verifier
from hango.db.pool import Pool
from hango.domain import (
    AgentDefinition,
    Block,
    Gate,
    Limits,
    Role,
    Run,
    RunState,
    Scope,
    Session,
    Tenant,
    TextBlock,
    User,
    new_id,
)
from hango.store.accounts import Accounts
from hango.store.agents import Agents, NewAgent
from hango.store.queue import RunQueue
from hango.store.runs import Runs
from hango.store.sessions import Sessions
from hango.testing.clock import LeaseClock
from hango.testing.databases import sql
from hango.testing.workers import NONE, Worker, own_pool, running_worker
from hango.tools import Tool

DEFAULTS = WorkerSettings()
_PATIENCE = 30.0  # real seconds; a test that waits longer hangs


@attrs.frozen
class SeededTenant:
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

    async def key(self, role: Role = Role.OWNER) -> str:
        """Make an API key of the user of that role."""
        return (await self.accounts.create_key(self.tenant.id, self.users[role].id, actor=None)).key

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

    async def ended(self, run: Run) -> Run:
        """Wait until a run has ended; on a `LeaseClock`, within `LeaseClock.autojump`."""
        return (await until(self, [run]))[0]

    @asynccontextmanager
    async def worker(
        self,
        provider: Provider,
        *tools: Tool,
        settings: WorkerSettings = DEFAULTS,
        guardrails: Mapping[str, Guardrail] = NONE,
        verifiers: Mapping[str, Verifier] = NONE,
    ) -> AsyncIterator[Worker]:
        """Have a process that executes runs, with connections of its own.

        At the end it is drained, as by a signal: what still runs is waited for, then released.

        Args:
            provider: what the agent of this world gets when it asks for its own.
            tools: what it may use.
            settings: bounds and rhythms.
            guardrails: by the name agents choose them by.
            verifiers: likewise, for completion gates.
        """
        async with (
            own_pool(self.pool) as pool,
            running_worker(
                pool,
                {self.agent.provider: provider},
                *tools,
                settings=settings,
                guardrails=guardrails,
                verifiers=verifiers,
            ) as worker,
        ):
            yield worker

    def queue(
        self, *, owner_id: UUID | None = None, lease_ttl: float = 90.0, max_reclaims: int = 10
    ) -> RunQueue:
        """Stand for a process: a queue with an owner of its own."""
        return RunQueue(self.pool, owner_id or new_id(), lease_ttl, max_reclaims)

    async def lapse(self, run: Run) -> None:
        """Let the run's lease run out, where the database's clock is the real one."""
        await sql(
            self.pool,
            "update runs set lease_expires_at = now() - interval '1 second' where id = $1",
            run.id,
        )


def scope_of(user: User) -> Scope:
    """Act as *user*."""
    return user.scope


World = SeededTenant  # its name before 0.2


async def make_seeded_tenant(
    pool: Pool,
    slug: str = "acme",
    *,
    provider: str = "fake",
    limits: Limits | None = None,
    guardrails: Sequence[str] = (),
    completion: Gate | None = None,
) -> SeededTenant:
    """Create a tenant named *slug* with all that a test needs to begin.

    Args:
        pool: its database.
        slug: of the tenant.
        provider: what its agent asks for.
        limits: of its agent.
        guardrails: their names.
        completion: its gate.
    """
    accounts = Accounts(pool)
    tenant = await accounts.create_tenant(slug, slug.title())
    users = {
        role: await accounts.create_user(tenant.id, f"{role}@{slug}.test", role, actor=None)
        for role in Role
    }
    new = NewAgent(
        "helper",
        "Helper",
        provider,
        "model-1",
        guardrails=tuple(guardrails),
        completion=completion,
        limits=limits or Limits(),
    )
    agent = await Agents(pool).create(tenant.id, new, actor=None)
    return SeededTenant(pool, tenant, users, agent)


async def until(world: SeededTenant, runs: Sequence[Run], *states: RunState) -> list[Run]:
    """Wait, by the doorbell, until every one of *runs* is in one of *states* (none: ended)."""
    wanted = states or tuple(state for state in RunState if state.terminal)
    on_lease_clock = isinstance(
        trio.lowlevel.current_clock(), LeaseClock
    )  # it has a patience of its own
    with trio.fail_after(math.inf if on_lease_clock else _PATIENCE):
        async with world.pool.listen() as rings:
            while True:
                now = [await world.reload(run) for run in runs]
                if all(run.state in wanted for run in now):
                    return now
                await anext(rings)
