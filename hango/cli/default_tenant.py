"""The defaults of `hango run` and `hango dev`: a tenant, its owner, and an agent.

They are created if missing, so they are the same every time, also if two commands start at once.
"""

from __future__ import annotations

import attrs

from hango.config import Settings
from hango.domain import AgentDefinition, Role, Scope, Tenant, User
from hango.domain.names import check_name, slug_of
from hango.errors import AlreadyExists, ConfigError, NotFound
from hango.store import Stores
from hango.store.agents import NewAgent

TENANT = "default"
OWNER = "owner@localhost"

# The model if OPENAI_MODEL is not set; the demo ignores it, but an agent needs one.
_MODELS = {"openai": "gpt-4.1-mini"}


@attrs.frozen
class DefaultTenant:
    """The tenant of this machine, and the owner its commands act for."""

    tenant: Tenant
    owner: User

    @property
    def scope(self) -> Scope:
        """The scope of the owner."""
        return self.owner.scope


async def open_default_tenant(stores: Stores) -> DefaultTenant:
    """Return the tenant and its owner, created if missing."""
    try:
        tenant = await stores.accounts.tenant(TENANT)
    except NotFound:
        try:
            tenant = await stores.accounts.create_tenant(TENANT, "Default")
        except AlreadyExists:
            tenant = await stores.accounts.tenant(TENANT)
    return DefaultTenant(tenant, await _owner(stores, tenant))


async def _owner(stores: Stores, tenant: Tenant) -> User:
    try:
        return await stores.accounts.user(tenant.id, OWNER)
    except NotFound:
        try:
            return await stores.accounts.create_user(tenant.id, OWNER, Role.OWNER, actor=None)
        except AlreadyExists:
            return await stores.accounts.user(tenant.id, OWNER)


async def open_agent(stores: Stores, home: DefaultTenant, settings: Settings) -> AgentDefinition:
    """Return the agent of the chosen provider, created if missing; its slug is the provider's name.

    If OPENAI_MODEL is set to another model than the agent has, the agent is changed.
    """
    provider = settings.chosen_provider
    wanted = settings.openai_model if provider == "openai" else None
    wanted = wanted and _checked_model(wanted)
    model = wanted or _MODELS.get(provider, provider)
    slug = slug_of(provider)
    try:
        found = await stores.agents.by_slug(home.tenant.id, slug)
    except NotFound:
        new = NewAgent(slug, provider, provider, model)
        try:
            return await stores.agents.create(home.tenant.id, new, actor=home.owner.id)
        except AlreadyExists:
            found = await stores.agents.by_slug(home.tenant.id, slug)
    if wanted is None or found.model == wanted:
        return found

    def change(now: AgentDefinition) -> NewAgent:
        return attrs.evolve(NewAgent.of(now), model=wanted)

    return await stores.agents.update(home.tenant.id, found.id, change, actor=home.owner.id)


def _checked_model(name: str) -> str:
    try:
        return check_name(name)
    except ValueError as error:
        raise ConfigError((f"OPENAI_MODEL: {error}",)) from None
