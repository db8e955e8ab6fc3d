"""Schemas that a tool brings itself: valid, closed in themselves, and never without end."""

from __future__ import annotations

import pytest

from hango.domain import Effects, JsonObject, ToolContext
from hango.errors import RegistrationError
from hango.tools import Tool

from support.tools import call_one


def made_of(parameters: JsonObject) -> Tool:
    """Make a tool with a schema of its own."""

    async def echo(**arguments: object) -> object:
        return arguments

    return Tool("echo", "Say it again.", parameters, Effects.READ_ONLY, echo)


async def test_a_tool_may_bring_its_own_schema() -> None:
    """Property names need not be Python's, and the context is still given."""

    async def echo(context: ToolContext, **arguments: object) -> object:
        return [context.call_id, arguments]

    schema = {
        "type": "object",
        "properties": {"a-b": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"minimum": 1}},
    }
    made = Tool("echo", "", schema, Effects.READ_ONLY, echo)
    assert (await call_one(made, **{"a-b": 2})).for_llm == '["c1",{"a-b":2}]'
    assert (await call_one(made, **{"a-b": 0})).is_error


@pytest.mark.rule(20)
def test_what_models_are_told_is_clean() -> None:
    """C01: description and schema reach a provider as they are."""
    made = Tool("t", "a\0", {"type": "object", "title": "\ud800"}, Effects.READ_ONLY, print)
    assert made.definition.description == "a\ufffd"
    assert made.definition.parameters["title"] == "\ufffd"
    with pytest.raises(RegistrationError):
        Tool("t", None, {"type": "object"}, Effects.READ_ONLY, print)  # type: ignore[arg-type]


def test_a_schema_is_kept_as_it_was_given() -> None:
    """Changing the object afterwards changes no tool."""
    schema: dict[str, object] = {"type": "object", "properties": {}}
    made = made_of(schema)
    schema["type"] = "string"
    assert made.parameters["type"] == "object"


OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "object"),
        ({"type": "array"}, "object"),
        ({"type": "object", "properties": 5}, "not valid"),
        ({"type": "object", "properties": {"a": {"type": "strange"}}}, "not valid"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "not valid"),
        ({"type": "object", "x": float("nan")}, "JSON"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, "2020-12"),
        (OBJECT | {"$ref": "http://127.0.0.1:9/schema.json"}, "outside itself"),
        (OBJECT | {"properties": {"a": {"$ref": "other.json#/x"}}}, "outside itself"),
        (OBJECT | {"properties": {"a": {"$dynamicRef": "file:///etc/passwd"}}}, "outside itself"),
        (OBJECT | {"properties": {"a": {"$ref": "#/$defs/missing"}}}, "has no"),
        (OBJECT | {"$ref": "#"}, "without end"),
        (
            OBJECT | {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
            "without end",
        ),
        (OBJECT | {"not": {"$ref": "#"}}, "without end"),
        (OBJECT | {"$defs": {"a": {"$id": "http://x/", "$ref": "b"}}}, "id"),
    ],
)
def test_a_schema_that_is_wrong_or_reaches_outside_is_refused(schema: JsonObject, reason: str) -> None:
    """C13: nothing is ever fetched to validate, and validation ends."""
    with pytest.raises(RegistrationError, match=reason):
        made_of(schema)


def test_a_self_recursive_schema_is_resolved() -> None:
    """C13: going round through a property ends with the value."""
    made = made_of({"type": "object", "properties": {"next": {"$ref": "#"}, "not": {"type": "null"}}})
    assert made.bind({"next": {"next": {}}})


def test_many_ways_through_a_schema_are_checked_in_no_time() -> None:
    """Sixty definitions that each use the next one twice are 2^60 paths."""
    defs: dict[str, object] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)
    }
    made_of({"type": "object", "$defs": defs | {"d60": {"type": "null"}}})


UNIT: JsonObject = {"enum": ["c", "f"], "type": "string"}
ITS_UNIT: JsonObject = {"$ref": "#/$defs/Unit"}
TREE: JsonObject = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}


def properties(named: JsonObject, key: str = "$defs", **definitions: JsonObject) -> JsonObject:
    """Return the schema of an object with these properties, and definitions."""
    return {"type": "object", "properties": named, **({key: definitions} if definitions else {})}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (properties({"unit": ITS_UNIT}, Unit=UNIT), properties({"unit": UNIT})),
        (
            properties({"unit": {**ITS_UNIT, "default": "c"}}, Unit={**UNIT, "description": "A unit"}),
            properties({"unit": {**UNIT, "description": "A unit", "default": "c"}}),
        ),
        (
            properties({"unit": {**ITS_UNIT, "maxLength": 1}}, Unit=UNIT),
            properties({"unit": {"allOf": [UNIT], "maxLength": 1}}),
        ),
        (
            properties(
                {"lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}}},
                "definitions",
                Line=properties({"unit": {"$ref": "#/definitions/Unit"}}),
                Unit=UNIT,
            ),
            properties({"lines": {"type": "array", "items": properties({"unit": UNIT})}}),
        ),
        (
            properties({"tree": {"$ref": "#/$defs/Tree"}, "unit": ITS_UNIT}, Tree=TREE, Unit=UNIT),
            properties({"tree": {"$ref": "#/$defs/Tree"}, "unit": UNIT}, Tree=TREE),
        ),
        (
            properties({"a": {"const": ITS_UNIT}, "$ref": ITS_UNIT}, Unit=UNIT),
            properties({"a": {"const": ITS_UNIT}, "$ref": UNIT}),
        ),
        (
            properties(
                {"pet": {"discriminator": {"mapping": {"c": "#/$defs/Unit"}}, "oneOf": [ITS_UNIT]}},
                Unit=UNIT,
            ),
            properties({"pet": {"oneOf": [UNIT]}}),
        ),
    ],
)
def test_references_are_written_out_before_a_schema_is_sent(
    schema: JsonObject, sent: JsonObject
) -> None:
    """N02: many servers drop or refuse them; recursive ones stay, and data is not looked into."""
    made = made_of(schema)
    assert made.definition.parameters == sent
    assert made.parameters == schema


def chain(length: int, *names: str) -> JsonObject:
    """Return a schema of definitions each of which has the next one in every property of *names*."""
    definitions = {
        f"d{n}": properties({name: {"$ref": f"#/$defs/d{n + 1}"} for name in names})
        for n in range(length)
    }
    start = properties({"a": {"$ref": "#/$defs/d0"}})
    return {**start, "$defs": {**definitions, f"d{length}": UNIT}}


@pytest.mark.parametrize(
    "schema",
    [
        properties({"next": {"$ref": "#"}}),
        properties({"a": UNIT, "b": {"$ref": "#/properties/a"}}),
        chain(30, "a", "b"),
        chain(300, "a"),
    ],
    ids=["root", "pointer", "exponential", "deep"],
)
def test_what_cannot_be_written_out_is_sent_as_it_is(schema: JsonObject) -> None:
    """N02: references to other places, and what would grow without measure."""
    assert made_of(schema).definition.parameters == schema
