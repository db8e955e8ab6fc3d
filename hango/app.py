"""The composition root: the parts a command is made of, put together from the settings.

Nesting order is shutdown order: the database is outermost (an embedded one included), in it the pool,
in it what executes runs.  `hango.serve` adds the web server; `hango.cli` chooses what a command needs.
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
from hango.errors import ConfigError
from hango.plugins import Plugins, make_providers
from hango.plugins import load_plugins as load_modules
from hango.providers import DemoProvider, OpenAIProvider
from hango.store import Stores
from hango.store.queue import RunQueue
from hango.tools import builtin_tools

T = TypeVar("T")

_log = logging.getLogger(__name__)


def load_plugins(settings: Settings) -> Plugins:
    """Return what is registered here: the built-in tools and providers, then what the plug-ins add.

    Raises:
        RegistrationError: a plug-in cannot be used.
        ConfigError: the default provider is none of those registered.
    """
    plugins = Plugins()
    for tool in builtin_tools(http_fetch_allowed_hosts=settings.http_fetch_allowed_hosts):
        plugins.tool(tool)
    plugins.provider("demo", DemoProvider)
    plugins.provider("openai", partial(_openai, settings))
    if settings.plugins:
        # Last, so that a file in this folder cannot stand in for a module of anything installed.
        sys.path.append(str(Path.cwd()))
        load_modules(settings.plugins, plugins)
    if settings.chosen_provider not in plugins.providers:
        known = ", ".join(plugins.providers)
        raise ConfigError(
            (f"HANGO_DEFAULT_PROVIDER: {settings.default_provider!r} is none of {known}",)
        )
    return plugins


def _openai(settings: Settings) -> OpenAIProvider:
    key, timeout = settings.openai_api_key or "", settings.provider_timeout
    if settings.openai_base_url is None:
        return OpenAIProvider(api_key=key, timeout=timeout)
    return OpenAIProvider(settings.openai_base_url, api_key=key, timeout=timeout)


@contextmanager
def open_database(settings: Settings) -> Iterator[str]:
    """Have a database; yields its URL.  Blocks: enter it before trio runs.

    Raises:
        EmbeddedPostgresError: none is named, and hango's own cannot be started.
    """
    if settings.database_url is not None:
        yield settings.database_url
        return
    with embedded_postgres(settings.data_dir, settings.pg_bindir) as dsn:
        yield dsn


@asynccontextmanager
async def open_stores(settings: Settings, dsn: str) -> AsyncIterator[Stores]:
    """Bring the schema up to date and open the pool; everything else happens within."""
    for name in await migrate(dsn):
        _log.info("applied migration %s", name)
    async with open_pool(dsn, size=settings.db_pool_size, lease_ttl=settings.run_lease_ttl) as pool:
        yield Stores.on(pool)


def with_stores(settings: Settings, work: Callable[[Stores], Awaitable[T]]) -> T:
    """Do *work* on the database, and nothing else: no run is executed meanwhile."""

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
    only: UUID | None = None,
    events: EventSink | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Execute runs until *drain* is set and all that run here are settled or handed over.

    Args:
        settings: bounds and rhythms.
        plugins: the tools and providers there are.
        pool: its database.
        drain: set to end.
        only: a session, to execute its runs and no others.
        events: where progress is told.
        task_status: started once it looks for runs.
    """
    worker = _worker_settings(settings)
    providers = make_providers(plugins)
    # A fresh owner at each start: a process that comes back is somebody else, and what it had before
    # it died is taken back like anybody's.
    queue = RunQueue(pool, uuid4(), settings.run_lease_ttl, settings.run_max_reclaims, only)
    await supervise(
        queue=queue,
        pool=pool,
        prepare=ExecutionBuilder(
            providers, plugins.registry, worker, plugins.guardrails, plugins.verifiers
        ).prepare,
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
        tool_timeout=settings.tool_timeout,
        max_iterations=settings.max_iterations,
        max_tool_calls=settings.max_tool_calls,
        tool_result_limit=settings.tool_result_limit,
    )
