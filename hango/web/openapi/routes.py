"""``/openapi.json`` and ``/docs``: the API's description, served without a key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata

import attrs
from quart import Response

from hango.web.openapi.document import make_document
from hango.web.openapi.page import make_page
from hango.web.route import Reply, Route, route

# The page is text and style; a browser runs and loads nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@attrs.frozen
class DocumentRoutes:
    """The description of the API.

    Attributes:
        document: as JSON.
        page: as HTML.
    """

    document: str
    page: str

    @classmethod
    def of(cls, routes: Sequence[Route]) -> DocumentRoutes:
        """Describe *routes*, as this version of hango serves them."""
        version = metadata.version("hango")
        text = json.dumps(make_document(version, routes), ensure_ascii=False, separators=(",", ":"))
        return cls(text, make_page(version, routes))

    @route(
        "GET",
        "/openapi.json",
        "server",
        Reply(200, "The document.", schema={"type": "object"}),
        key=False,
    )
    async def openapi(self) -> Response:
        """Get this description as JSON (OpenAPI 3.1)."""
        headers = {"Cache-Control": "no-store"}
        return Response(self.document, 200, headers, content_type="application/json")

    @route(
        "GET",
        "/docs",
        "server",
        Reply(200, "The page.", media="text/html", schema={"type": "string"}),
        key=False,
    )
    async def docs(self) -> Response:
        """Get this description as a page to read."""
        headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
        return Response(self.page, 200, headers, content_type="text/html; charset=utf-8")
