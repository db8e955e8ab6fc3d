"""The web application: what is served where, and how its errors are answered.

Rule: the application owns nothing.  Stores and settings come in, are used, and are closed by whoever
made them; nothing is opened before serving or closed after it, because that code does not run when a
sibling of the server fails.  `hango.app` composes it; `hango.web.server` serves it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio
from quart import Blueprint, Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from hango.db.pool import Pool
from hango.store import Stores
from hango.web.admin import AuditRoutes, UserRoutes
from hango.web.agents import AgentRoutes
from hango.web.auth import AuthRoutes
from hango.web.endings import Endings
from hango.web.models.requests import Registered
from hango.web.models.responses import StatusJson
from hango.web.openapi import DocumentRoutes
from hango.web.problem import DRAINING, UNAVAILABLE, ApiError, answer_error
from hango.web.route import Reply, Route, blueprint_of, route, routes_of
from hango.web.runs import RunRoutes
from hango.web.sessions import SessionRoutes
from hango.web.wire import json_response


@attrs.frozen
class WebSettings:
    """What an operator decides about the API.

    Attributes:
        max_body: bytes of a request's body.
        max_live_runs: queued and running runs one session may have.
        providers, tools, guardrails, verifiers: names that are registered, so that agents may use them.
        body_timeout: seconds a body may take to arrive.
        ping_timeout: seconds the database may take to say that it is there.
    """

    max_body: int = 1024 * 1024
    max_live_runs: int = 20
    providers: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    guardrails: frozenset[str] = frozenset()
    verifiers: frozenset[str] = frozenset()
    body_timeout: float = 30.0
    ping_timeout: float = 2.0


@attrs.frozen
class WebApp:
    """The application, as `hango.web.server` takes it.

    Attributes:
        asgi: what answers requests.
        endings: what must listen while it does.
    """

    asgi: QuartTrio
    endings: Endings


def create_app(stores: Stores, settings: WebSettings, draining: trio.Event) -> WebApp:
    """Make the application; *draining* is set when this process is to take no new runs."""
    app = QuartTrio("hango.web", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body
    app.config["BODY_TIMEOUT"] = settings.body_timeout
    # the server cuts a reader that stands still; a slow one may take its time
    app.config["RESPONSE_TIMEOUT"] = None
    # /v1//runs is a wrong path, answered as one, not a redirect
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.register_error_handler(Exception, answer_error)
    app.register_error_handler(HTTPException, answer_error)
    endings = Endings(stores.pool, stores.runs, draining)
    app.register_blueprint(blueprint_of(HealthRoutes(stores.pool, settings.ping_timeout, draining)))
    app.register_blueprint(blueprint_of(DocumentRoutes.of(ROUTES)))
    app.register_blueprint(_v1(stores, settings, endings))
    return WebApp(app, endings)


def _v1(stores: Stores, settings: WebSettings, endings: Endings) -> Blueprint:
    auth = AuthRoutes(stores.accounts)
    registered = Registered(settings.providers, settings.tools, settings.guardrails, settings.verifiers)
    v1 = Blueprint("v1", __name__)
    v1.before_request(auth.require_key)
    for handlers in (
        RunRoutes(stores.runs, stores.sessions, endings, settings.max_live_runs, endings.draining),
        SessionRoutes(stores.sessions),
        AgentRoutes(stores.agents, registered),
        UserRoutes(stores.accounts),
        AuditRoutes(stores.audit),
        auth,
    ):
        v1.register_blueprint(blueprint_of(handlers))
    return v1


@attrs.frozen
class HealthRoutes:
    """Whether this process is alive, and whether it should get requests; no key needed."""

    pool: Pool
    ping_timeout: float
    draining: trio.Event

    @route("GET", "/healthz", "server", Reply(200, "It is.", StatusJson), key=False)
    async def healthz(self) -> Response:
        """Check that the process is alive."""
        return json_response(StatusJson())

    @route(
        "GET",
        "/readyz",
        "server",
        Reply(200, "It is.", StatusJson),
        problems=[DRAINING, UNAVAILABLE],
        key=False,
    )
    async def readyz(self) -> Response:
        """Check that the server accepts new runs and reaches its database."""
        if self.draining.is_set():
            raise ApiError(DRAINING)
        await self.pool.ping(deadline=self.ping_timeout)
        return json_response(StatusJson())


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
        DocumentRoutes,
    )
    for declared in routes_of(handlers)
]
"""Every route of the API, in the order of the OpenAPI document."""
