"""What `hango run` and `hango dev` work with when nothing is named: a tenant, its owner, an agent.

One rule: get or create, so that they are the same every time, also when two commands start at once.
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

# What a model is called when nothing says so; the demo needs no name, but an agent does.
_MODELS = {"openai": "gpt-4.1-mini"}


@attrs.frozen
class Home:
    """The tenant of this machine, and on whose behalf its commands act."""

    tenant: Tenant
    owner: User

    @property
    def scope(self) -> Scope:
        """The owner's."""
        return self.owner.scope


async def open_home(stores: Stores) -> Home:
    """Find the tenant and its owner, or create them."""
    try:
        tenant = await stores.accounts.tenant(TENANT)
    except NotFound:
        try:
            tenant = await stores.accounts.create_tenant(TENANT, "Default")
        except AlreadyExists:
            tenant = await stores.accounts.tenant(TENANT)
    return Home(tenant, await _owner(stores, tenant))


async def _owner(stores: Stores, tenant: Tenant) -> User:
    try:
        return await stores.accounts.user(tenant.id, OWNER)
    except NotFound:
        try:
            return await stores.accounts.create_user(tenant.id, OWNER, Role.OWNER, actor=None)
        except AlreadyExists:
            return await stores.accounts.user(tenant.id, OWNER)


async def open_agent(stores: Stores, home: Home, settings: Settings) -> AgentDefinition:
    """Find the agent of the chosen provider, or create it; its slug is made of the provider's name.

    It follows OPENAI_MODEL: the model it had before is replaced when another one is set.
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
