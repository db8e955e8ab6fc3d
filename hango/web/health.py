"""``/healthz``, ``/readyz`` and ``/metrics``, and the application that answers nothing else.

Rule: no key is needed here, so nothing here is content of a run.
"""

from __future__ import annotations

import attrs
import trio
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from hango.db.pool import Pool
from hango.telemetry.exporting import Scrape
from hango.web.access import current
from hango.web.models.responses import StatusJson
from hango.web.problem import DRAINING, NOT_FOUND, UNAVAILABLE, ApiError, answer_error
from hango.web.route import Reply, blueprint_of, route
from hango.web.wire import json_response

PING_TIMEOUT = 2.0  # seconds that the database may take to answer a readiness check


@attrs.frozen
class HealthRoutes:
    """Whether this process is alive, and whether it should get work; no key needed."""

    pool: Pool
    ping_timeout: float
    draining: trio.Event

    @route("GET", "/healthz", "server", Reply(200, "The process is alive.", StatusJson), key=False)
    async def healthz(self) -> Response:
        """Check that the process is alive."""
        return json_response(StatusJson())

    @route(
        "GET",
        "/readyz",
        "server",
        Reply(200, "The server is ready.", StatusJson),
        problems=[DRAINING, UNAVAILABLE],
        key=False,
    )
    async def readyz(self) -> Response:
        """Check that the server accepts new runs and reaches its database."""
        if self.draining.is_set():
            raise ApiError(DRAINING)
        await self.pool.ping(deadline=self.ping_timeout)
        return json_response(StatusJson())


@attrs.frozen
class MetricsRoutes:
    """The metrics of this process.

    Attributes:
        scrape: None where they are read elsewhere, at HANGO_HEALTH_BIND, or not at all.
    """

    scrape: Scrape | None

    @route(
        "GET",
        "/metrics",
        "server",
        Reply(200, "The metrics.", media="text/plain", schema={"type": "string"}),
        problems=[NOT_FOUND],
        key=False,
    )
    async def get_metrics(self) -> Response:
        """Get the metrics of this process, in the text format of Prometheus.

        Not found where `HANGO_HEALTH_BIND` is set: they are answered there.
        """
        if self.scrape is None:
            raise ApiError(NOT_FOUND)
        # in a thread: with many series it takes longer than the event loop should stand still
        accept = request.headers.get("Accept", "")
        text, content_type = await trio.to_thread.run_sync(self.scrape, accept)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(text, 200, headers, content_type=content_type)


async def note_route() -> None:
    """Note for the access log which route answers; runs before every handler."""
    if (access := current()) is not None and request.url_rule is not None:
        access.route = request.url_rule.rule


@attrs.frozen
class HealthApp:
    """The application behind HANGO_HEALTH_BIND, as `hango.web.server` takes it."""

    asgi: QuartTrio

    async def listen(self) -> None:
        """Do nothing: no request here waits for a notification."""


def create_health_app(pool: Pool, draining: trio.Event, scrape: Scrape | None) -> HealthApp:
    """Make the application; *draining* is set when this process takes no new runs any more."""
    app = QuartTrio("hango.health", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = 0
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.config["RESPONSE_TIMEOUT"] = None

    app.before_request(note_route)

    async def answer(error: Exception) -> Response:
        return answer_error(error)

    app.register_error_handler(Exception, answer)
    app.register_error_handler(HTTPException, answer)
    app.register_blueprint(blueprint_of(HealthRoutes(pool, PING_TIMEOUT, draining)))
    app.register_blueprint(blueprint_of(MetricsRoutes(scrape)))
    return HealthApp(app)
