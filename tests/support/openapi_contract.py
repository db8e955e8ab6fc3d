"""The OpenAPI document, held against every answer that the tests of the API get."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import httpx
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from hango.domain import JsonObject
from hango.web.app import ROUTES
from hango.web.openapi import make_document
from hango.web.route import Route

DOCUMENT = make_document("test", ROUTES)
_REGISTRY = Registry().with_contents(
    [("urn:document", dict(DOCUMENT))], default_specification=DRAFT202012
)
_PATHS = [
    (route.method, re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path)), route) for route in ROUTES
]


def route_of(request: httpx.Request) -> Route | None:
    """Return what is asked for by *request*; None if it is nothing."""
    for method, path, route in _PATHS:
        if method == request.method and path.fullmatch(request.url.path):
            return route
    return None


def promised(route: Route, status: int) -> Mapping[str, Mapping[str, JsonObject]]:
    """Return what the document says of that answer; an undeclared one is an assertion."""
    paths = cast(
        "Mapping[str, Mapping[str, Mapping[str, Mapping[str, JsonObject]]]]", DOCUMENT["paths"]
    )
    responses = paths[route.path][route.method.lower()]["responses"]
    assert str(status) in responses, f"{route.name} does not declare {status}"
    return cast("Mapping[str, Mapping[str, JsonObject]]", responses[str(status)])


async def keeps_its_promise(response: httpx.Response) -> None:
    """Fail unless *response* has a declared status, with its headers, type and shape."""
    route = route_of(response.request)
    if route is None:
        assert response.status_code in {400, 401, 404, 405}, response
        return
    promise = promised(route, response.status_code)
    for name, header in promise.get("headers", {}).items():
        assert name in response.headers or not header["required"], f"{route.name}: no {name}"
    await response.aread()
    content = promise.get("content", {})
    media = response.headers.get("content-type", "").partition(";")[0]
    assert media in content if content else not response.content, f"{route.name}: {media}"
    if media.endswith("json"):
        _validate(response.json(), route, response.status_code, media)


def _validate(body: object, route: Route, status: int, media: str) -> None:
    place = "/".join(
        part.replace("~", "~0").replace("/", "~1")
        for part in (
            *("paths", route.path, route.method.lower(), "responses", str(status)),
            *("content", media, "schema"),
        )
    )
    schema = {"$ref": f"urn:document#/{place}"}
    Draft202012Validator(schema, registry=_REGISTRY, format_checker=FormatChecker()).validate(body)
