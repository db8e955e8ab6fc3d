"""Reading the JSON that servers send, of which nothing can be assumed.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hango.codec import clean_part
from hango.domain import JsonObject
from hango.domain.defaults import MAX_TOKEN_COUNT
from hango.errors import InvalidInput


def as_text(value: object) -> str:
    """Return *value* if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def objects_in(value: object) -> list[JsonObject]:
    """Return the objects of a list; empty if *value* is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_at(parent: JsonObject, key: str) -> JsonObject:
    """Return the object at *key*; an empty one if there is none."""
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}


def count_at(parent: JsonObject, key: str) -> int | None:
    """Return the count of tokens at *key*; None if there is none that can be one."""
    value = parent.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_TOKEN_COUNT else None


def storable(value: JsonObject) -> JsonObject:
    """Return *value* if it can be stored and sent back, else an empty object."""
    try:
        clean_part(value)
    except InvalidInput:
        return {}
    return value
