"""The web application: what is served where, and how its errors are answered.

Rule: the application owns nothing.  Stores and settings come in, are used, and are closed by whoever
made them; nothing is opened before serving or closed after it, because that code does not run when a
sibling of the server fails.  `hango.app` composes it; `hango.web.server` serves it.
"""

from __future__ import annotations

import attrs
import trio
from quart import Blueprint, Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from hango.db.pool import Pool
from hango.store import Stores
from hango.web.admin import AuditRoutes, UserRoutes
from hango.web.agents import AgentRoutes, Registered
from hango.web.auth import AuthRoutes
from hango.web.endings import Endings
from hango.web.openapi import DocumentRoutes
from hango.web.problem import DRAINING, Refused, answer_error
from hango.web.runs import RunRoutes
from hango.web.sessions import SessionRoutes
from hango.web.wire import answer


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
    app.register_blueprint(HealthRoutes(stores.pool, settings.ping_timeout, draining).blueprint())
    app.register_blueprint(DocumentRoutes.of_this_version().blueprint())
    endings = Endings(stores.pool, stores.runs, draining)
    app.register_blueprint(_v1(stores, settings, endings))
    return WebApp(app, endings)


def _v1(stores: Stores, settings: WebSettings, endings: Endings) -> Blueprint:
    auth = AuthRoutes(stores.accounts)
    registered = Registered(settings.providers, settings.tools, settings.guardrails, settings.verifiers)
    v1 = Blueprint("v1", __name__, url_prefix="/v1")
    v1.before_request(auth.require_key)
    for routes in (
        auth,
        AgentRoutes(stores.agents, registered),
        SessionRoutes(stores.sessions),
        RunRoutes(stores.runs, stores.sessions, endings, settings.max_live_runs, endings.draining),
        UserRoutes(stores.accounts),
        AuditRoutes(stores.audit),
    ):
        v1.register_blueprint(routes.blueprint())
    return v1


@attrs.frozen
class HealthRoutes:
    """Whether this process lives, and whether it wants requests; no key needed."""

    pool: Pool
    ping_timeout: float
    draining: trio.Event

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("health", __name__)
        routes.get("/healthz")(self.healthz)
        routes.get("/readyz")(self.readyz)
        return routes

    async def healthz(self) -> Response:
        """Answer, which is all that is asked."""
        return answer({"status": "ok"})

    async def readyz(self) -> Response:
        """Answer ok while new runs are taken and the database is there; else 503."""
        if self.draining.is_set():
            raise Refused(DRAINING)
        await self.pool.ping(deadline=self.ping_timeout)
        return answer({"status": "ok"})
