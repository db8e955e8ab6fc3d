"""A process that answers HTTP and executes runs, until a signal tells it to drain.

Nesting order is shutdown order: the database pool is outermost, then the web server, then the workers.
This is not in `hango.app`, so that commands that do not serve load no web server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from os import environ
from uuid import UUID, uuid4

import attrs
import trio

from hango import watchdog
from hango.app import open_stores, work
from hango.config import ProcessRole, Settings
from hango.errors import ConfigError
from hango.observation import observing, start_counters
from hango.plugins import Plugins
from hango.safe_errors import flatten
from hango.signals import watch_signals
from hango.store import Stores
from hango.store.processes import Process
from hango.telemetry import content
from hango.telemetry.exporting import Scrape, exporting
from hango.web.app import WebSettings, create_app
from hango.web.health import create_health_app
from hango.web.models.requests import Registered
from hango.web.server import serve as serve_web
from hango.web.server.accept import Application
from hango.web.server.limits import ConnectionLimits

# Seconds that a shutdown may take beyond HANGO_DRAIN_TIMEOUT: 5 to release interrupted runs, the rest
# to close connections.
_DRAIN_SLACK = 15.0

_log = logging.getLogger(__name__)


async def serve(
    settings: Settings,
    plugins: Plugins,
    dsn: str,
    *,
    welcome: Callable[[Stores, str], Awaitable[None]] | None = None,
) -> None:
    """Serve in the role of the settings until a signal arrives; then drain.

    While draining, the web server refuses new runs but answers other requests until the last run of
    this process is settled or released, so that clients still learn how their runs ended.

    Args:
        settings: the settings of this process.
        plugins: the registered tools and providers.
        dsn: the URL of the database.
        welcome: called with the stores and the URL once requests are answered.
    """
    process = _process(settings)
    async with (
        exporting(environ, str(process.id), scraped=True) as scrape,
        open_stores(settings, dsn) as stores,
        observing(stores.pool, process),
    ):
        content.record(on=settings.trace_content or content.asked_for(environ))
        start_counters(plugins)
        await _Server(settings, plugins, stores, scrape, process.id, welcome).run()
    _log.info("drained")


def _process(settings: Settings) -> Process:
    workers = 0 if settings.role is ProcessRole.WEB else settings.run_workers
    return Process(uuid4(), settings.role, workers)


@attrs.frozen
class _Server:
    """The servers and workers of a process; see `serve`."""

    settings: Settings
    plugins: Plugins
    stores: Stores
    scrape: Scrape | None
    owner_id: UUID
    welcome: Callable[[Stores, str], Awaitable[None]] | None
    draining: trio.Event = attrs.field(factory=trio.Event)
    handed_over: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        """Run until a signal has come and the process is drained."""
        settings = self.settings
        longest = settings.drain_timeout + _DRAIN_SLACK
        async with trio.open_nursery() as signals:
            await signals.start(watch_signals, self.draining, longest)
            signals.start_soon(watchdog.watch, settings.longest_stall, name="watchdog")
            async with trio.open_nursery() as web:
                await self._start_health(web)
                if settings.role is not ProcessRole.WORKER:
                    await self._start_web(web)
                await self._work()
                self.handed_over.set()
            signals.cancel_scope.cancel()

    async def _start_health(self, web: trio.Nursery) -> None:
        if (bind := self.settings.health_bind) is None:
            return
        app = create_health_app(self.stores.pool, self.draining, self.scrape)
        url = await self._listen(web, app, "HANGO_HEALTH_BIND", bind)
        _log.info("answering health checks and /metrics on %s", url)

    async def _start_web(self, web: trio.Nursery) -> None:
        scrape = self.scrape if self.settings.health_bind is None else None
        web_settings = _web_settings(self.settings, self.plugins)
        app = create_app(self.stores, web_settings, self.draining, scrape)
        url = await self._listen(web, app, "HANGO_BIND", self.settings.bind)
        _log.info("listening on %s", url)
        if self.welcome is not None:
            await self.welcome(self.stores, url)

    async def _work(self) -> None:
        """Execute runs, if that is this process's role, until it is drained."""
        start = partial(
            work,
            self.settings,
            self.plugins,
            self.stores.pool,
            drain=self.draining,
            owner_id=self.owner_id,
        )
        async with trio.open_nursery() as worker:
            if self.settings.role is not ProcessRole.WEB:
                await worker.start(start)
                _log.info("executing runs")
            await self.draining.wait()
            _log.info("draining")

    async def _listen(self, web: trio.Nursery, app: Application, setting: str, bind: str) -> str:
        """Start a server in *web*, until the process is drained; return its URL once it answers."""
        limits = connection_limits(self.settings)
        try:
            urls: list[str] = await web.start(
                partial(serve_web, app, bind, stop=self.handed_over, limits=limits)
            )
        except* OSError as errors:
            reason = flatten(errors)[0]
            raise ConfigError((f"{setting}: cannot listen on {bind}: {reason}",)) from errors
        return urls[0]


def _web_settings(settings: Settings, plugins: Plugins) -> WebSettings:
    registered = Registered(
        providers=frozenset(plugins.providers),
        tools=frozenset(plugins.registry.names()),
        guardrails=frozenset(plugins.guardrails),
        verifiers=frozenset(plugins.verifiers),
        made_providers=plugins.made_providers(),
    )
    return WebSettings(
        registered,
        max_body=settings.max_body,
        max_live_runs=settings.max_queued_runs,
    )


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return what clients of the web server may do."""
    return ConnectionLimits(
        keep_alive=settings.keep_alive,
        connections=settings.max_connections,
        per_peer=settings.max_connections_per_peer,
    )
