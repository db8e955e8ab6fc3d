"""``/openapi.json`` and ``/docs``: the description, served without a key."""

from __future__ import annotations

from importlib import metadata

import attrs
from quart import Blueprint, Response

from hango.domain import JsonObject
from hango.web.openapi.document import make_document
from hango.web.openapi.page import make_page
from hango.web.wire import answer

# The page is text and style, and nothing else; whatever else got into it would not run.
_ONLY_ITSELF = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@attrs.frozen
class DocumentRoutes:
    """The description of the API.

    Attributes:
        document: for programs.
        page: for people.
    """

    document: JsonObject
    page: str

    @classmethod
    def of_this_version(cls) -> DocumentRoutes:
        """Describe what is served here."""
        version = metadata.version("hango")
        return cls(make_document(version), make_page(version))

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("openapi", __name__)
        routes.get("/openapi.json")(self.for_programs)
        routes.get("/docs")(self.for_people)
        return routes

    async def for_programs(self) -> Response:
        """Answer the OpenAPI document."""
        return answer(self.document)

    async def for_people(self) -> Response:
        """Answer the page."""
        headers = {"Content-Security-Policy": _ONLY_ITSELF, "X-Content-Type-Options": "nosniff"}
        return Response(self.page, 200, headers, content_type="text/html; charset=utf-8")
