"""The OpenAPI document, made of `operations` and `schemas`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from hango.domain import JsonObject
from hango.web import problem
from hango.web.openapi.operation import Answer, Operation, Parameter
from hango.web.openapi.operations import OPERATIONS, ROOMS
from hango.web.openapi.schemas import SCHEMAS
from hango.web.openapi.words import named
from hango.web.problem import Kind

_HEADERS: Mapping[str, JsonObject] = {
    "Location": {"description": "Path of what was made.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "The key had come before, and so had the run.",
        "schema": {"const": "true"},
    },
    "Preference-Applied": {
        "description": "The wait that was agreed to.",
        "schema": {"type": "string", "pattern": "^wait=[0-9]+$"},
    },
    "Retry-After": {
        "description": "Seconds until it is worth another try.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "description": "How to say who one is.",
        "schema": {"type": "string"},
    },
}


def make_document(version: str) -> JsonObject:
    """Describe the API of hango *version*."""
    paths: dict[str, dict[str, JsonObject]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hango",
            "version": version,
            "summary": "Run AI agents durably.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in ROOMS.items()],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key: `hgo_…`."}
            },
        },
    }


def _operation(operation: Operation) -> JsonObject:
    described = {"description": operation.description} if operation.description else {}
    return {
        "operationId": operation.name,
        "tags": [operation.room],
        "summary": operation.summary,
        **described,
        "security": [{"key": []}] if operation.key else [],
        "parameters": [*map(_id, operation.ids), *map(_parameter, operation.parameters)],
        **(_body(operation.body, operation.example) if operation.body else {}),
        "responses": {
            **{str(answer.status): _answer(answer) for answer in operation.answers},
            **_refusals(operation.problems),
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


def _body(schema: JsonObject, example: Mapping[str, object] | None) -> JsonObject:
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _answer(answer: Answer) -> JsonObject:
    content = {answer.media: {"schema": answer.schema}} if answer.schema else None
    headers = _headers(answer.headers, required=True) | _headers(answer.may_have, required=False)
    return _response(answer.description, content, headers)


def _refusals(problems: Sequence[Kind]) -> JsonObject:
    return {
        str(status): _refusal(list(kinds)) for status, kinds in groupby(problems, attrgetter("status"))
    }


def _refusal(kinds: Sequence[Kind]) -> JsonObject:
    codes = {"properties": {"code": {"enum": [kind.code for kind in kinds]}}}
    content = {problem.CONTENT_TYPE: {"schema": {"allOf": [named("Problem"), codes]}}}
    needed = ["Retry-After"] if all(kind.retry_after is not None for kind in kinds) else []
    if problem.UNAUTHENTICATED in kinds:
        needed.append("WWW-Authenticate")
    text = "; ".join(f"`{kind.code}`: {kind.title}" for kind in kinds)
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
