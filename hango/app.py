"""The composition root: what a process is made of, and the map of how it ends.

One rule: nesting order is shutdown order.  Outermost is the database (an embedded one included), in it
the pool, in it what executes runs (its heartbeat outside its sessions), and innermost the web server.
Nothing here decides anything else; `hango.cli` chooses which parts a command needs.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import trio

from hango.actors import WorkerSettings, Workshop, supervise
from hango.agent.ports import UNHEARD, EventSink
from hango.config import ProcessRole, Settings
from hango.errors import ConfigError
from hango.plugins import Plugins
from hango.plugins import load_plugins as load_modules
from hango.providers import DemoProvider, OpenAIProvider
from hango.store.accounts import Accounts
from hango.store.agents import Agents
from hango.store.audit import Audit
from hango.store.embedded import embedded_postgres
from hango.store.migrations import migrate
from hango.store.pool import Pool, open_pool
from hango.store.queue import RunQueue
from hango.store.runs import Runs
from hango.store.sessions import Sessions
from hango.tools import builtin_tools
from hango.web.app import Stores, WebApp, WebSettings, create_app
from hango.web.server import serve as serve_web

T = TypeVar("T")

# Seconds in which one signal may arrive twice: sent to the process, and to its group as well.
_ECHO = 0.05
# Seconds that a shutdown may take beyond HANGO_DRAIN_TIMEOUT: interrupted runs have 5 to be released,
# and closing what is open takes less than the rest.
_GOODBYE = 15.0

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
        yield Stores(Accounts(pool), Agents(pool), Sessions(pool), Runs(pool), Audit(pool), pool)


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
    providers = {name: factory() for name, factory in plugins.providers.items()}
    # A fresh owner at each start: a process that comes back is somebody else, and what it had before
    # it died is taken back like anybody's.
    queue = RunQueue(pool, uuid4(), settings.run_lease_ttl, settings.run_max_reclaims, only)
    await supervise(
        queue=queue,
        pool=pool,
        prepare=Workshop(
            providers, plugins.registry, worker, plugins.guardrails, plugins.verifiers
        ).prepare,
        settings=worker,
        drain=drain,
        events=events or UNHEARD,
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


async def serve(
    settings: Settings,
    plugins: Plugins,
    dsn: str,
    *,
    welcome: Callable[[Stores, str], Awaitable[None]] | None = None,
) -> None:
    """Serve in the role of the settings until a signal says to drain; then drain.

    Draining, the web server takes no new runs but answers until the last run here is settled or
    handed over, so that whoever asks for one still learns how it went.

    Args:
        settings: what this process is to do, and where.
        plugins: the tools and providers there are.
        dsn: its database.
        welcome: told the stores and the URL once requests are answered.
    """
    draining, handed_over = trio.Event(), trio.Event()
    async with open_stores(settings, dsn) as stores, trio.open_nursery() as signals:
        longest = settings.drain_timeout + _GOODBYE
        await signals.start(watch_signals, draining, longest)
        async with trio.open_nursery() as web:
            if settings.role is not ProcessRole.WORKER:
                app = create_app(stores, _web_settings(settings, plugins), draining)
                url = await _listen(web, app, settings.bind, stop=handed_over)
                _log.info("listening on %s", url)
                if welcome is not None:
                    await welcome(stores, url)
            async with trio.open_nursery() as worker:
                if settings.role is not ProcessRole.WEB:
                    await worker.start(partial(work, settings, plugins, stores.pool, drain=draining))
                    _log.info("executing runs")
                await draining.wait()
                _log.info("draining")
            handed_over.set()
        signals.cancel_scope.cancel()
    _log.info("drained")


def _web_settings(settings: Settings, plugins: Plugins) -> WebSettings:
    return WebSettings(
        max_body=settings.max_body,
        max_live_runs=settings.max_queued_runs,
        providers=frozenset(plugins.providers),
        tools=frozenset(plugins.registry.names()),
        guardrails=frozenset(plugins.guardrails),
        verifiers=frozenset(plugins.verifiers),
    )


async def _listen(web: trio.Nursery, app: WebApp, bind: str, *, stop: trio.Event) -> str:
    """Answer requests in *web* until *stop* is set; return where, once they are answered."""
    try:
        urls: list[str] = await web.start(partial(serve_web, app, bind, stop=stop))
    except* OSError as errors:
        reason = next(iter(errors.exceptions))
        raise ConfigError((f"HANGO_BIND: cannot listen on {bind}: {reason}",)) from errors
    return urls[0]


async def watch_signals(
    first: trio.Event,
    longest: float = math.inf,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Set *first* at the first SIGINT or SIGTERM; end the process at once at the second.

    Also *longest* seconds after the first: a tool that does not let itself be cancelled would keep the
    process for ever.  At once means: what is running is neither finished nor released.  Its lease
    lapses, and another process goes on from the last finished turn.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        number = await anext(signals)
        first.set()
        with trio.move_on_after(_ECHO):
            async for _ in signals:
                pass
        _log.info("a second signal ends at once")
        with trio.move_on_after(longest) as waiting:
            number = await anext(signals)
        if waiting.cancelled_caught:
            _log.error("something does not let itself be cancelled; its run is left to its lease")
    sys.stderr.flush()
    os._exit(128 + number)
