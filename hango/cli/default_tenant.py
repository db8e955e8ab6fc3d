"""The defaults of `hango run` and `hango dev`: a tenant, its owner, and an agent.

They are created if missing, so they are the same every time, also if two commands start at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

import attrs

from hango.config import Settings
from hango.domain import AgentDefinition, Role, Scope, Tenant, User
from hango.domain.names import check_name, slug_of
from hango.errors import AlreadyExists, ConfigError, NotFound
from hango.store import Stores
from hango.store.agents import NewAgent

TENANT = "default"
OWNER = "owner@localhost"
_KEY_FILE = "dev.key"  # in the data folder

# The model if none is set; the demo ignores it, but an agent needs one.
_MODELS = {"openai": "gpt-4.1-mini", "anthropic": "claude-sonnet-4-5"}


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


@attrs.frozen
class ModelChoice:
    """A provider, and the model that is wanted of it; empty for the one its agent has."""

    provider: str
    model: str

    @classmethod
    def of(cls, settings: Settings, named: str | None, providers: Container[str]) -> ModelChoice:
        """Return what *named* names, as ``anthropic/claude-sonnet-4-5``; None: what the settings do.

        A name that begins with no provider of *providers* is a model of the chosen one.

        Raises:
            ConfigError: a name cannot be that of a model.
        """
        if named is None:
            provider = settings.chosen_provider
            models = {"openai": settings.openai_model, "anthropic": settings.anthropic_model}
            wanted = models.get(provider)
            return cls(provider, _checked_model(wanted, f"{provider.upper()}_MODEL") if wanted else "")
        provider, slash, model = named.partition("/")
        if not slash or provider not in providers:
            provider, model = settings.chosen_provider, named
        return cls(provider, _checked_model(model, "--model"))


async def open_agent(stores: Stores, home: DefaultTenant, choice: ModelChoice) -> AgentDefinition:
    """Return the agent of the chosen provider, created if missing; its slug is the provider's name.

    If another model is wanted than the agent has, the agent is changed.
    """
    provider, wanted = choice.provider, choice.model
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
    if not wanted or found.model == wanted:
        return found

    def change(now: AgentDefinition) -> NewAgent:
        return attrs.evolve(NewAgent.of(now), model=wanted)

    return await stores.agents.update(home.tenant.id, found.id, change, actor=home.owner.id)


def _checked_model(name: str, source: str) -> str:
    try:
        return check_name(name)
    except ValueError as error:
        raise ConfigError((f"{source}: {error}",)) from None


async def open_key(stores: Stores, home: DefaultTenant, folder: Path) -> str:
    """Return the text of the owner's key that is kept in *folder*; a new one if it is not valid.

    The file is private to this user: the database has only the hash of a key.
    """
    file = folder / _KEY_FILE
    kept = _read_private(file)
    use = await stores.accounts.authenticate(kept) if kept else None
    if use is not None and not use.refusal and use.user.id == home.owner.id:
        return kept
    made = await stores.accounts.create_key(home.tenant.id, home.owner.id, actor=home.owner.id)
    with suppress(OSError):  # then the next start makes another one
        _write_private(file, made.key)
    return made.key


def _write_private(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        stream.write(text)


def _read_private(file: Path) -> str:
    """Return what is in *file*; empty if it is not there, or not a file that only this user reads."""
    try:
        found = file.lstat()
        private = stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077
        return file.read_text("utf-8") if private and found.st_uid == os.geteuid() else ""
    except (OSError, UnicodeError):
        return ""
