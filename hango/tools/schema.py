"""The JSON Schema of a tool's arguments: checked at registration, shown to models, used at every call.

Rule: a schema is of draft 2020-12, describes an object, refers to nothing outside itself (nothing is
ever fetched) and never to itself without end (validation terminates).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import cast

import attrs
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


# Where the values of an object are schemas by name, and where they are data, not schemas
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "examples"})
# What may stand beside a reference without changing what it means
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated"})
MAX_INLINED = 5000  # objects in a schema without references; definitions used again and again grow it


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


def map_subschemas(
    schema: Mapping[str, object], change: Callable[[object], object]
) -> dict[str, object]:
    """Return *schema* with *change* applied to each schema directly in it; data stay as they are."""
    return {key: _map_value(key, value, change) for key, value in schema.items()}


def _map_value(key: str, value: object, change: Callable[[object], object]) -> object:
    if key in _DATA:
        return value
    if key in _NAMED and isinstance(value, Mapping):
        return {name: change(item) for name, item in value.items()}
    if isinstance(value, list):
        return [change(item) for item in value]
    return change(value) if isinstance(value, Mapping) else value


def inline_references(schema: JsonObject) -> JsonObject:
    """Return *schema*, which is valid, without references as far as it can be written without.

    Many servers that speak OpenAI's API drop or refuse ``$ref``.  Recursive definitions stay.  A schema
    that refers to anything but its definitions, or would become too large, is returned as it is.
    """
    try:
        return _Inliner(_definitions(schema)).inline(schema)
    except (_CannotInline, RecursionError):
        return schema


class _CannotInline(Exception):  # never leaves this module
    pass


@attrs.define
class _Inliner:
    """Replaces references to *definitions*, by reference; *open* are those that are being replaced."""

    definitions: Mapping[str, object]
    recursive: set[str] = attrs.field(factory=set)
    open: list[str] = attrs.field(factory=list)
    size: int = 0

    def inline(self, schema: JsonObject) -> JsonObject:
        for reference in self.definitions:  # so that all recursive ones are known
            self._expand({"$ref": reference})
        root = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
        written = cast("dict[str, object]", self._expand(root))
        kept = {name: self._expand(self.definitions[name]) for name in sorted(self.recursive)}
        for reference, definition in kept.items():
            _, key, name = reference.split("/")
            cast("dict[str, object]", written.setdefault(key, {}))[name] = definition
        return written

    def _expand(self, node: object) -> object:
        if not isinstance(node, Mapping):
            return node
        self.size += 1
        if self.size > MAX_INLINED:
            raise _CannotInline
        reference = node.get("$ref")
        rest = {key: value for key, value in node.items() if key not in ("$ref", "discriminator")}
        changed = map_subschemas(rest, self._expand)
        return changed if reference is None else self._replace(reference, changed)

    def _replace(self, reference: object, beside: dict[str, object]) -> object:
        if not isinstance(reference, str) or reference not in self.definitions:
            raise _CannotInline
        if reference in self.open:
            self.recursive.update(self.open[self.open.index(reference) :])
        if reference in self.recursive:
            return {"$ref": reference, **beside}
        self.open.append(reference)
        target = self._expand(self.definitions[reference])
        self.open.pop()
        if reference in self.recursive:
            return {"$ref": reference, **beside}
        if isinstance(target, Mapping) and beside.keys() <= _ANNOTATIONS:
            return {**target, **beside}
        return {"allOf": [target], **beside} if beside else target


def _definitions(schema: JsonObject) -> Mapping[str, object]:
    """Return the definitions of *schema* by the references to them."""
    found: dict[str, object] = {}
    for key in ("$defs", "definitions"):
        named = schema.get(key)
        if isinstance(named, Mapping):
            found |= {f"#/{key}/{name}": value for name, value in named.items() if "/" not in name}
    return found


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
