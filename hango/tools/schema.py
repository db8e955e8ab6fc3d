"""The JSON Schema of a tool's arguments: checked at registration, used at every call.

Rule: a schema is of draft 2020-12, describes an object, refers to nothing outside itself (nothing is
ever fetched) and never to itself without end (validation terminates).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from jsonschema import Draft202012Validator, SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from hango.codec import cut_text
from hango.domain import JsonObject
from hango.errors import InvalidInput

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_VIOLATIONS = 3  # in one message: a model repairs a few, and the rest often follow from them
MAX_VIOLATION = 400  # bytes each; jsonschema quotes the offending value

# Keywords whose schemas are applied to the same value, not to a part of it:
# https://json-schema.org/draft/2020-12/json-schema-core#section-10.2
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLES = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef")

_Lookup = Callable[[str], object]


def compile_schema(schema: JsonObject) -> Draft202012Validator:
    """Check *schema* and return a validator of arguments.

    Raises:
        InvalidInput: it is not a valid schema of an object, or refers to something outside itself.
    """
    if schema.get("type") != "object":
        raise InvalidInput('its schema must be of "type": "object"')
    if schema.get("$schema", DIALECT) != DIALECT:
        raise InvalidInput(f"its schema must be of {DIALECT}")
    checker = Draft202012Validator.FORMAT_CHECKER  # so that broken patterns are found now
    try:
        Draft202012Validator.check_schema(schema, format_checker=checker)
        _check_references(schema)
    except SchemaError as error:
        message = cut_text(error.message, MAX_VIOLATION)
        raise InvalidInput(f"its schema is not valid at {error.json_path}: {message}") from None
    except RecursionError:
        raise InvalidInput("its schema is too deep") from None
    return Draft202012Validator(schema, registry=Registry())


def check_arguments(validator: Draft202012Validator, arguments: JsonObject) -> None:
    """Check *arguments* against a compiled schema.

    Raises:
        InvalidInput: they violate it; the text names the first violations, bounded.
    """
    found = list(islice(validator.iter_errors(arguments), MAX_VIOLATIONS))
    if found:
        violations = (f"{e.json_path}: {cut_text(e.message, MAX_VIOLATION)}" for e in found)
        raise InvalidInput("; ".join(violations))


def _check_references(schema: JsonObject) -> None:
    """Refuse references to outside, to nothing, and in a circle."""
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()

    def lookup(reference: str) -> object:
        if not reference.startswith("#"):
            raise InvalidInput(f"its schema refers to {cut_text(reference, 200)}, outside itself")
        try:
            return resolver.lookup(reference).contents
        except Unresolvable:
            raise InvalidInput(f"its schema has no {cut_text(reference, 200)}") from None

    ends: dict[int, bool] = {}
    for node in _objects(schema):
        if node is not schema and isinstance(node.get("$id"), str):
            raise InvalidInput("its schema holds another schema with an $id of its own")
        _check_ends(node, lookup, ends)


def _check_ends(node: object, lookup: _Lookup, ends: dict[int, bool]) -> None:
    """Refuse a schema that applies itself to the same value, since validating it would never end.

    *ends* holds the visited schemas by id: False while they are being followed, True when they end.
    """
    if ends.setdefault(id(node), False):
        return
    for following in _in_place(node, lookup):
        if ends.get(id(following)) is False:
            raise InvalidInput("its schema refers to itself without end")
        _check_ends(following, lookup, ends)
    ends[id(node)] = True


def _in_place(node: object, lookup: _Lookup) -> Iterator[object]:
    if not isinstance(node, Mapping):
        return
    for key in _REFERENCES:
        if isinstance(reference := node.get(key), str):
            yield lookup(reference)
    for key in _LISTS:
        if isinstance(several := node.get(key), list):
            yield from several
    for key in _SINGLES:
        if key in node:
            yield node[key]


def _objects(node: object) -> Iterator[Mapping[str, object]]:
    """Yield every object in a schema, also in data such as defaults: better too strict than too lax."""
    if isinstance(node, Mapping):
        yield node
        for value in node.values():
            yield from _objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from _objects(value)
