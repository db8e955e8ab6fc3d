"""The OpenAPI document, made from the routes and their models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from hango.domain import JsonObject
from hango.web import problem
from hango.web.models.responses import ProblemJson
from hango.web.models.schema import make_schemas, ref_to
from hango.web.problem import ProblemType
from hango.web.route import Parameter, Reply, Route

TAGS: Mapping[str, str] = {
    "runs": "Send prompts to a session's agent, and follow the runs that answer them.",
    "sessions": "Conversations with agents, and the messages in them.",
    "agents": "Models with instructions and tools; all users read them, admins and owners write them.",
    "administration": "Users, their keys and the audit log; for admins and owners.",
    "server": "The server itself.",
}
_HEADERS: Mapping[str, JsonObject] = {
    "Location": {"description": "Path of what was created.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "The key was used before, and the run is the one created then.",
        "schema": {"const": "true"},
    },
    "Preference-Applied": {
        "description": "The wait that was granted.",
        "schema": {"type": "string", "pattern": "^wait=[0-9]+$"},
    },
    "Retry-After": {
        "description": "Seconds to wait before trying again.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "description": "The authentication scheme.",
        "schema": {"type": "string"},
    },
}


def make_document(version: str, routes: Sequence[Route]) -> JsonObject:
    """Describe the API of hango *version*."""
    paths: dict[str, dict[str, JsonObject]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hango",
            "version": version,
            "summary": "Run AI agents durably.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas_of(routes),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key: `hgo_…`."}
            },
        },
    }


def schemas_of(routes: Sequence[Route]) -> Mapping[str, JsonObject]:
    """Return the schemas of all that *routes* take and answer, by name."""
    bodies = [route.body for route in routes if route.body]
    answers = [reply.model for route in routes for reply in route.replies if reply.model]
    return make_schemas(bodies, [*answers, ProblemJson])


def _operation(route: Route) -> JsonObject:
    return {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        **({"description": route.description} if route.description else {}),
        "security": [{"key": []}] if route.key else [],
        "parameters": [*map(_id, route.ids), *map(_parameter, route.parameters)],
        **_body(route),
        "responses": {
            **{str(reply.status): _reply(reply) for reply in route.replies},
            **_problems(route.all_problems),
        },
    }


def _id(name: str) -> JsonObject:
    schema = {"type": "string", "format": "uuid"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(parameter: Parameter) -> JsonObject:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _body(route: Route) -> JsonObject:
    if route.body is None:
        return {}
    content = {"application/json": {"schema": ref_to(route.body), "example": route.example}}
    return {"requestBody": {"required": True, "content": content}}


def _reply(reply: Reply) -> JsonObject:
    headers = _headers(reply.headers, required=True) | _headers(reply.may_have, required=False)
    return _response(reply.description, reply.content, headers)


def _problems(found: Sequence[ProblemType]) -> JsonObject:
    by_status = groupby(found, attrgetter("status"))
    return {str(status): _problem(list(types)) for status, types in by_status}


def _problem(types: Sequence[ProblemType]) -> JsonObject:
    codes = {"properties": {"code": {"enum": [it.code for it in types]}}}
    content = {problem.CONTENT_TYPE: {"schema": {"allOf": [ref_to(ProblemJson), codes]}}}
    needed = ["Retry-After"] if all(it.retry_after is not None for it in types) else []
    if problem.UNAUTHENTICATED in types:
        needed.append("WWW-Authenticate")
    text = "; ".join(f"`{it.code}`: {it.title}" for it in types)
    return _response(f"{text}.", content, _headers(needed, required=True))


def _headers(names: Iterable[str], *, required: bool) -> dict[str, JsonObject]:
    return {name: {**_HEADERS[name], "required": required} for name in names}


def _response(
    description: str, content: JsonObject | None, headers: Mapping[str, JsonObject]
) -> JsonObject:
    return {
        "description": description,
        **({"headers": headers} if headers else {}),
        **({"content": content} if content else {}),
    }
