"""What JSON Schemas are made of here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from hango.domain import JsonObject

TEXT: JsonObject = {"type": "string"}
ID: JsonObject = {"type": "string", "format": "uuid"}
NO_ID: JsonObject = {"type": ["string", "null"], "format": "uuid"}
TIME: JsonObject = {"type": "string", "format": "date-time"}
NO_TIME: JsonObject = {"type": ["string", "null"], "format": "date-time"}
COUNT: JsonObject = {"type": "integer", "minimum": 0}


def named(name: str) -> JsonObject:
    """Refer to a schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: JsonObject) -> JsonObject:
    """Allow null, too."""
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(values: type[StrEnum], description: str = "") -> JsonObject:
    """Allow the values of an enumeration."""
    return _described({"type": "string", "enum": [value.value for value in values]}, description)


def shape(
    description: str,
    members: Mapping[str, JsonObject],
    optional: Mapping[str, JsonObject] | None = None,
) -> JsonObject:
    """Describe an object that has all of *members*, perhaps some *optional* ones, and no others."""
    properties = {**members, **(optional or {})}
    schema: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(members),
        "additionalProperties": False,
    }
    return _described(schema, description)


def page_of(name: str) -> JsonObject:
    """Describe a page of a list."""
    cursor = {"type": ["string", "null"], "description": "Null: there is no more."}
    return shape("", {"data": {"type": "array", "items": named(name)}, "next_cursor": cursor})


def _described(schema: JsonObject, description: str) -> JsonObject:
    return {"description": description, **schema} if description else schema
