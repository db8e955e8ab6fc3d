"""The web application: its routes, and how errors are answered.

Rule: the application owns nothing.  Its caller opens and closes the stores it is given; nothing is
opened before serving or closed after it, because that code does not run when a sibling of the server
fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio
from quart import Blueprint, Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from hango.store import Stores
from hango.telemetry.exporting import Scrape
from hango.web.admin import AuditRoutes, UserRoutes
from hango.web.agents import AgentRoutes
from hango.web.auth import AuthRoutes, caller
from hango.web.denials import Denials
from hango.web.health import PING_TIMEOUT, HealthRoutes, MetricsRoutes, note_route
from hango.web.models.requests import Registered
from hango.web.openapi import DocumentRoutes
from hango.web.problem import FORBIDDEN, answer_error, problem_of
from hango.web.route import Route, blueprint_of, routes_of
from hango.web.run_waiter import RunWaiter
from hango.web.runs import RunRoutes
from hango.web.sessions import SessionRoutes


@attrs.frozen
class WebSettings:
    """Settings of the API.

    Attributes:
        registered: the names that agents may use.
        max_body: bytes of a request's body.
        max_live_runs: queued and running runs that one session may have.
        body_timeout: seconds that a body may take to arrive.
        ping_timeout: seconds that the database may take to answer a readiness check.
    """

    registered: Registered = attrs.field(factory=Registered)
    max_body: int = 1024 * 1024
    max_live_runs: int = 20
    body_timeout: float = 30.0
    ping_timeout: float = PING_TIMEOUT


@attrs.frozen
class WebApp:
    """The application, as `hango.web.server` takes it.

    Attributes:
        asgi: answers requests.
        run_waiter: the requests that wait for runs.
    """

    asgi: QuartTrio
    run_waiter: RunWaiter

    async def listen(self) -> None:
        """Receive the notifications that requests wait for; runs while requests are answered."""
        await self.run_waiter.listen()


def create_app(
    stores: Stores, settings: WebSettings, draining: trio.Event, scrape: Scrape | None = None
) -> WebApp:
    """Make the application.

    Args:
        stores: what it reads and writes.
        settings: what an operator decides.
        draining: set when this process takes no new runs any more.
        scrape: what ``/metrics`` answers; None where that is not found.
    """
    app = QuartTrio("hango.web", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body
    app.config["BODY_TIMEOUT"] = settings.body_timeout
    # the server cuts clients that stop reading; a slow one may take its time
    app.config["RESPONSE_TIMEOUT"] = None
    # /v1//runs is a 404, not a redirect
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    denials = Denials(stores.audit)

    async def answer(error: Exception) -> Response:
        if problem_of(error).type is FORBIDDEN:
            await denials.denied(caller())
        return answer_error(error)

    app.before_request(note_route)
    app.register_error_handler(Exception, answer)
    app.register_error_handler(HTTPException, answer)
    waiter = RunWaiter(stores.pool, stores.runs, draining)
    app.register_blueprint(blueprint_of(HealthRoutes(stores.pool, settings.ping_timeout, draining)))
    app.register_blueprint(blueprint_of(MetricsRoutes(scrape)))
    app.register_blueprint(blueprint_of(DocumentRoutes.of(ROUTES)))
    app.register_blueprint(_v1(stores, settings, waiter, denials))
    return WebApp(app, waiter)


def _v1(stores: Stores, settings: WebSettings, waiter: RunWaiter, denials: Denials) -> Blueprint:
    auth = AuthRoutes(stores.accounts, denials)
    v1 = Blueprint("v1", __name__)
    v1.before_request(auth.require_key)
    for handlers in (
        RunRoutes(stores.runs, stores.sessions, waiter, settings.max_live_runs, waiter.draining),
        SessionRoutes(stores.sessions),
        AgentRoutes(stores.agents, settings.registered),
        UserRoutes(stores.accounts),
        AuditRoutes(stores.audit),
        auth,
    ):
        v1.register_blueprint(blueprint_of(handlers))
    return v1


ROUTES: Sequence[Route] = [
    declared
    for handlers in (
        RunRoutes,
        SessionRoutes,
        AgentRoutes,
        UserRoutes,
        AuditRoutes,
        AuthRoutes,
        HealthRoutes,
        MetricsRoutes,
        DocumentRoutes,
    )
    for declared in routes_of(handlers)
]
"""Every route of the API, in the order of the OpenAPI document."""
