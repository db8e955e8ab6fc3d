"""`hango tenant`, `user`, `key` and `agent create`: administration from a shell, without an API key.

Each prints the new object in the format of the API; the text of a key is shown only then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeAlias
from uuid import UUID

import click

from hango import app
from hango.cli.common_options import as_json, show, start
from hango.codec import time_to_json
from hango.config import LogLevel
from hango.domain import Gate, JsonObject, Role, User
from hango.domain.names import check_email, check_name, check_slug
from hango.errors import NotFound
from hango.plugins import Plugins
from hango.store import Stores
from hango.store.agents import NewAgent
from hango.web.models.requests import MAX_ATTEMPTS
from hango.web.models.responses import AgentJson, NewKeyJson, UserJson

_Callback: TypeAlias = Callable[[click.Context, click.Parameter, str | None], str | None]


def _checked(check: Callable[[str], str]) -> _Callback:
    """Make a click callback of a check in `hango.domain.names`."""

    def callback(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


_slug, _name, _address = _checked(check_slug), _checked(check_name), _checked(check_email)
_tenant = click.option(
    "--tenant", "tenant_slug", required=True, callback=_slug, help="The slug of the tenant."
)


def _create(work: Callable[[Stores], Awaitable[JsonObject]], *, as_json: bool) -> None:
    show(app.with_stores(start(LogLevel.WARNING), work), as_json=as_json)


@click.group()
def tenant() -> None:
    """Tenants: the customers of this server."""


@tenant.command("create")
@click.argument("slug", callback=_slug)
@click.option("--name", callback=_name, help="A display name; defaults to the slug.")
@as_json
def create_tenant(slug: str, name: str | None, *, as_json: bool) -> None:
    """Create a tenant."""

    async def work(stores: Stores) -> JsonObject:
        made = await stores.accounts.create_tenant(slug, name or slug)
        return {
            "id": str(made.id),
            "slug": made.slug,
            "name": made.name,
            "created_at": time_to_json(made.created_at),
        }

    _create(work, as_json=as_json)


@click.group()
def user() -> None:
    """Users: the members of a tenant."""


@user.command("create")
@_tenant
@click.option("--email", required=True, callback=_address, help="The user's address.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.MEMBER.value,
    show_default=True,
)
@as_json
def create_user(tenant_slug: str, email: str, role: str, *, as_json: bool) -> None:
    """Create an active user.

    A member can use what they created; an admin or owner can use everything in the tenant.
    """

    async def work(stores: Stores) -> JsonObject:
        within = await stores.accounts.tenant(tenant_slug)
        made = await stores.accounts.create_user(within.id, email, Role(role), actor=None)
        return UserJson.of(made).to_json()

    _create(work, as_json=as_json)


@click.group()
def key() -> None:
    """API keys of users."""


@key.command("create")
@_tenant
@click.option("--email", required=True, help="The user's address.")
@as_json
def create_key(tenant_slug: str, email: str, *, as_json: bool) -> None:
    """Create an API key for a user.

    Its text is shown only now; only a hash of it is stored.
    """

    async def work(stores: Stores) -> JsonObject:
        holder = await _user(stores, (await stores.accounts.tenant(tenant_slug)).id, email)
        made = await stores.accounts.create_key(holder.tenant_id, holder.id, actor=None)
        return NewKeyJson.of(made).to_json()

    _create(work, as_json=as_json)


async def _user(stores: Stores, tenant_id: UUID, email: str) -> User:
    """Return the user with this address, as given or in the form that is stored."""
    try:
        return await stores.accounts.user(tenant_id, email)
    except NotFound:
        with suppress(ValueError):
            email = check_email(email)
        return await stores.accounts.user(tenant_id, email)


@click.group()
def agent() -> None:
    """Agents: a model, its instructions and its tools."""


def _check(plugins: Plugins, agent: NewAgent) -> None:
    """Refuse names that are not registered here, or are given twice, as the API does."""
    verify = () if agent.completion is None else (agent.completion.verify,)
    _known("--provider", (agent.provider,), plugins.providers)
    _known("--tool", agent.tools, plugins.registry.names())
    _known("--guardrail", agent.guardrails, plugins.guardrails)
    _known("--verify", verify, plugins.verifiers)


def _known(option: str, names: Sequence[str], registered: Collection[str]) -> None:
    for name in names:
        if name not in registered:
            known = f"must be one of {', '.join(registered)}" if registered else "none is registered"
            raise click.BadParameter(f"{name!r} is not registered: {known}", param_hint=option)
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is given twice", param_hint=option)


def _gate(verify: str | None, max_attempts: int | None) -> Gate | None:
    if (verify is None) != (max_attempts is None):
        raise click.UsageError("a completion gate needs both --verify and --max-attempts")
    return None if verify is None or max_attempts is None else Gate(verify, max_attempts)


@agent.command("create")
@_tenant
@click.option(
    "--slug", required=True, callback=_slug, help="The slug of the agent, unique in the tenant."
)
@click.option("--provider", required=True, help="A registered provider.")
@click.option("--model", required=True, callback=_name, help="The name of the model at the provider.")
@click.option("--name", callback=_name, help="A display name; defaults to the slug.")
@click.option("--system-prompt", default="", help="Instructions for the model.")
@click.option("--tool", "tools", multiple=True, help="A tool it may call; repeatable. Default: all.")
@click.option(
    "--guardrail", "guardrails", multiple=True, help="A guardrail for each tool call; repeatable."
)
@click.option("--verify", default=None, help="The verifier of the completion gate.")
@click.option(
    "--max-attempts",
    type=click.IntRange(1, MAX_ATTEMPTS),
    default=None,
    help="How many answers the completion gate may judge in one run.",
)
@as_json
def create_agent(  # noqa: PLR0913 - one for each option
    *,
    tenant_slug: str,
    slug: str,
    provider: str,
    model: str,
    name: str | None,
    system_prompt: str,
    tools: tuple[str, ...],
    guardrails: tuple[str, ...],
    verify: str | None,
    max_attempts: int | None,
    as_json: bool,
) -> None:
    """Create an agent."""
    gate = _gate(verify, max_attempts)
    settings = start(LogLevel.WARNING)
    new = NewAgent(slug, name or slug, provider, model, system_prompt, tools, guardrails, gate)
    _check(app.load_plugins(settings), new)

    async def work(stores: Stores) -> JsonObject:
        within = await stores.accounts.tenant(tenant_slug)
        return AgentJson.of(await stores.agents.create(within.id, new, actor=None)).to_json()

    show(app.with_stores(settings, work), as_json=as_json)
