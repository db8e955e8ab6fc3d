"""A process that answers HTTP and executes runs, until a signal tells it to drain.

Nesting order is shutdown order: the database pool is outermost, then the web server, then the workers.
This is not in `hango.app`, so that commands that do not serve load no web server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from hango import watchdog
from hango.app import open_stores, work
from hango.config import ProcessRole, Settings
from hango.errors import ConfigError
from hango.plugins import Plugins
from hango.safe_errors import flatten
from hango.signals import watch_signals
from hango.store import Stores
from hango.web.app import WebApp, WebSettings, create_app
from hango.web.models.requests import Registered
from hango.web.server import serve as serve_web
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
    draining, handed_over = trio.Event(), trio.Event()
    async with open_stores(settings, dsn) as stores, trio.open_nursery() as signals:
        longest = settings.drain_timeout + _DRAIN_SLACK
        await signals.start(watch_signals, draining, longest)
        signals.start_soon(watchdog.watch, settings.longest_stall, name="watchdog")
        async with trio.open_nursery() as web:
            if settings.role is not ProcessRole.WORKER:
                app = create_app(stores, _web_settings(settings, plugins), draining)
                url = await _listen(web, app, settings, stop=handed_over)
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
    registered = Registered(
        providers=frozenset(plugins.providers),
        tools=frozenset(plugins.registry.names()),
        guardrails=frozenset(plugins.guardrails),
        verifiers=frozenset(plugins.verifiers),
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


async def _listen(web: trio.Nursery, app: WebApp, settings: Settings, *, stop: trio.Event) -> str:
    """Start the web server in *web*, until *stop* is set; return its URL once it answers."""
    limits = connection_limits(settings)
    try:
        urls: list[str] = await web.start(
            partial(serve_web, app, settings.bind, stop=stop, limits=limits)
        )
    except* OSError as errors:
        reason = flatten(errors)[0]
        raise ConfigError((f"HANGO_BIND: cannot listen on {settings.bind}: {reason}",)) from errors
    return urls[0]
