"""The composition root: builds the database, the pool and the workers from the settings.

Nesting order is shutdown order: the database is outermost, then the pool, then the workers.
`hango.serve` adds the web server; `hango.cli` chooses what a command needs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import trio

from hango.actors import ExecutionBuilder, WorkerSettings, supervise
from hango.agent.ports import NULL_SINK, EventSink
from hango.config import Settings
from hango.db.migrations import migrate
from hango.db.pool import Pool, open_pool
from hango.embedded import embedded_postgres
from hango.errors import ConfigError, StoreUnavailable
from hango.plugins import Plugins
from hango.plugins import load_plugins as load_modules
from hango.providers import AnthropicProvider, DemoProvider, OpenAIProvider
from hango.store import Stores
from hango.store.bounds import StoreBounds
from hango.store.queue import RunQueue
from hango.tools import builtin_tools

T = TypeVar("T")

_log = logging.getLogger(__name__)


def load_plugins(settings: Settings) -> Plugins:
    """Return the built-in tools and providers, and those of the plug-ins.

    Raises:
        RegistrationError: a plug-in cannot be used.
        ConfigError: the default provider is not registered.
    """
    plugins = Plugins()
    for tool in builtin_tools(http_fetch_allowed_hosts=settings.http_fetch_allowed_hosts):
        plugins.tool(tool)
    plugins.provider("demo", DemoProvider)
    plugins.provider("openai", partial(_openai, settings))
    plugins.provider("anthropic", partial(_anthropic, settings))
    if settings.plugins:
        # Last, so that a file in this folder cannot replace an installed module.
        sys.path.append(str(Path.cwd()))
        load_modules(settings.plugins, plugins)
    if settings.chosen_provider not in plugins.providers:
        known = ", ".join(plugins.providers)
        raise ConfigError(
            (f"HANGO_DEFAULT_PROVIDER: {settings.default_provider!r} must be one of {known}",)
        )
    return plugins


def _openai(settings: Settings) -> OpenAIProvider:
    key, name, timeout = settings.openai_api_key or "", "OPENAI_API_KEY", settings.provider_timeout
    if settings.openai_base_url is None:
        return OpenAIProvider(api_key=key, timeout=timeout, key_name=name)
    return OpenAIProvider(settings.openai_base_url, api_key=key, timeout=timeout, key_name=name)


def _anthropic(settings: Settings) -> AnthropicProvider:
    key, name, timeout = (
        settings.anthropic_api_key or "",
        "ANTHROPIC_API_KEY",
        settings.provider_timeout,
    )
    if settings.anthropic_base_url is None:
        return AnthropicProvider(api_key=key, timeout=timeout, key_name=name)
    return AnthropicProvider(settings.anthropic_base_url, api_key=key, timeout=timeout, key_name=name)


@contextmanager
def open_database(settings: Settings) -> Iterator[str]:
    """Yield the URL of the database; runs the embedded one if none is set.  Blocks: not inside trio.

    Raises:
        EmbeddedPostgresError: no URL is set, and the embedded server cannot be started.
    """
    if settings.database_url is not None:
        yield settings.database_url
        return
    with embedded_postgres(settings.data_dir, settings.pg_bindir) as dsn:
        yield dsn


@asynccontextmanager
async def open_stores(settings: Settings, dsn: str) -> AsyncIterator[Stores]:
    """Apply missing migrations and open the connection pool."""
    for name in await migrate(dsn):
        _log.info("applied migration %s", name)
    async with open_pool(dsn, size=settings.db_pool_size, lease_ttl=settings.run_lease_ttl) as pool:
        yield Stores.on(pool, StoreBounds(tenant_runs=settings.max_tenant_runs))


def with_stores(settings: Settings, work: Callable[[Stores], Awaitable[T]]) -> T:
    """Call *work* with the database, and return its result; no run is executed meanwhile."""

    async def main(dsn: str) -> T:
        async with open_stores(settings, dsn) as stores:
            return await work(stores)

    with open_database(settings) as dsn:
        return trio.run(main, dsn)


async def work(
    settings: Settings,
    plugins: Plugins,
    pool: Pool,
    *,
    drain: trio.Event,
    owner_id: UUID | None = None,
    only: UUID | None = None,
    events: EventSink | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Execute runs until *drain* is set and all runs of this process are settled or released.

    Args:
        settings: limits and intervals.
        plugins: the registered tools and providers.
        pool: the database.
        drain: set it to end.
        owner_id: what this process's claims are owned by; None draws one.  It must be new at each
            start, so that runs that this process had before a crash are reclaimed as any.
        only: execute only runs of this session.
        events: receives the progress of runs.
        task_status: started when the first poll is done.
    """
    try:
        await pool.warm_up()
    except StoreUnavailable as error:
        _log.warning(
            "the connections for heartbeats and notifications are still to be opened: %s", error
        )
    worker = _worker_settings(settings)
    providers = plugins.made_providers()  # made already, unless a test calls this
    queue = RunQueue(
        pool,
        owner_id or uuid4(),
        settings.run_lease_ttl,
        settings.run_max_reclaims,
        only,
        settings.max_running_runs,
    )
    await supervise(
        queue=queue,
        pool=pool,
        build=ExecutionBuilder(
            providers, plugins.registry, worker, plugins.guardrails, plugins.verifiers
        ).build,
        settings=worker,
        drain=drain,
        events=events or NULL_SINK,
        task_status=task_status,
    )


def _worker_settings(settings: Settings) -> WorkerSettings:
    return WorkerSettings(
        workers=settings.run_workers,
        lease_ttl=settings.run_lease_ttl,
        heartbeat_interval=settings.run_heartbeat_interval,
        reclaim_interval=settings.run_reclaim_interval,
        poll_interval=settings.run_poll_interval,
        drain_timeout=settings.drain_timeout,
        session_idle_timeout=settings.session_idle_timeout,
        run_deadline=settings.run_deadline,
        missing_grace=settings.missing_grace,
        tool_timeout=settings.tool_timeout,
        max_iterations=settings.max_iterations,
        max_tool_calls=settings.max_tool_calls,
        tool_result_limit=settings.tool_result_limit,
    )
