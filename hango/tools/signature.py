"""From a function to a tool: its schema, its description, and the conversion of arguments.

inspect, pydantic and docstring-parser do the reading; this module joins what they found, and names the
parameter when they cannot.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast, get_type_hints

import attrs
from docstring_parser import DocstringStyle, ParseError, parse
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from hango.codec import clean_json
from hango.domain import JsonObject, ToolContext
from hango.errors import InvalidInput

_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=False, validate_default=False)

# Where the keys of an object are names, and where values are data, not schemas.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "examples"})

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


Function: TypeAlias = Callable[..., object]  # type: ignore[explicit-any]  # any parameters, that is
"""Any async or sync function."""


@attrs.frozen
class Signature:
    """What a function's signature and docstring say.

    Attributes:
        description: its docstring without the sections; empty when it has none.
        convert: from checked JSON to the parameters the function is called with, by name; raises
            `InvalidInput`.
    """

    description: str
    parameters: JsonObject
    convert: Callable[[JsonObject], Mapping[str, object]]


def takes_context(function: Function) -> bool:
    """Return whether the first parameter is annotated `ToolContext`."""
    names = list(inspect.signature(function).parameters)
    return bool(names) and _hints(function).get(names[0]) is ToolContext


def read_signature(function: Function) -> Signature:
    """Read *function*'s signature and docstring.

    Raises:
        InvalidInput: no schema can be made from it; the text says why.
    """
    documented = _documented(function)
    model = _arguments_model(function)
    try:
        schema = model.model_json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        raise InvalidInput(f"no JSON Schema can be made from its parameters: {error}") from None

    def convert(arguments: JsonObject) -> Mapping[str, object]:
        try:
            values = model.model_validate(arguments)
        except ValidationError as error:
            raise InvalidInput(_violations(error)) from None
        fields = type(values).model_fields
        # only what was given, so that the function's own defaults stay its own
        return {str(fields[name].alias): getattr(values, name) for name in values.model_fields_set}

    for name, text in documented.parameters.items():
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", text)
    return Signature(documented.description, cast("JsonObject", _tidy(schema)), convert)


def _hints(function: Function) -> Mapping[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise InvalidInput(f"its annotations cannot be read: {error}") from None


# --- the schema ----------------------------------------------------------------------------


def _arguments_model(function: Function) -> type[BaseModel]:
    """Make a model with one field a parameter.

    The fields are numbered and the parameters' names are their aliases: a model's own attributes (copy,
    schema, json) are good names for parameters.
    """
    hints = _hints(function)
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and hints.get(parameters[0].name) is ToolContext:
        del parameters[0]
    fields = {
        f"p{index}": (_annotation(parameter, hints), _field(parameter))
        for index, parameter in enumerate(parameters)
    }
    try:
        return create_model("Arguments", __config__=_CONFIG, **fields)  # type: ignore[call-overload, no-any-return]  # fields are data here
    except (PydanticUserError, NameError, TypeError, ValueError) as error:
        raise InvalidInput(f"no JSON Schema can be made from its parameters: {error}") from None


def _annotation(parameter: inspect.Parameter, hints: Mapping[str, object]) -> object:
    if parameter.kind not in _PLAIN:
        raise InvalidInput(f"parameter {parameter} cannot be filled from a JSON object by name")
    if parameter.name not in hints:
        raise InvalidInput(f"parameter {parameter.name} has no annotation")
    if hints[parameter.name] is ToolContext:
        raise InvalidInput(f"ToolContext must be the first parameter, not {parameter.name}")
    return hints[parameter.name]


def _field(parameter: inspect.Parameter) -> object:
    if parameter.default is inspect.Parameter.empty:
        return Field(alias=parameter.name)
    try:
        clean_json(parameter.default)
    except InvalidInput:  # JSON has no word for it, so the schema leaves it out
        return Field(alias=parameter.name, default_factory=lambda: parameter.default)
    return Field(alias=parameter.name, default=parameter.default)


def _tidy(schema: object) -> object:
    """Drop generated titles and close every object that lists its properties."""
    match schema:
        case list():
            return [_tidy(item) for item in schema]
        case dict():
            tidy = {key: _tidy_value(key, value) for key, value in schema.items() if key != "title"}
            if "properties" in tidy:
                tidy.setdefault("additionalProperties", False)
            return tidy
        case _:
            return schema


def _tidy_value(key: str, value: object) -> object:
    if key in _DATA:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: _tidy(item) for name, item in value.items()}
    return _tidy(value)


def _violations(error: ValidationError) -> str:
    """Return pydantic's first findings, without the values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"$.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found[:3])


# --- the docstring -------------------------------------------------------------------------


@attrs.frozen
class _Documented:
    description: str
    parameters: Mapping[str, str]


def _documented(function: Function) -> _Documented:
    try:
        doc = parse(inspect.getdoc(function) or "", style=DocstringStyle.GOOGLE)
    except ParseError as error:
        raise InvalidInput(f"its docstring cannot be read: {error}") from None
    parts = [part for part in (doc.short_description, doc.long_description) if part]
    parameters = {p.arg_name: " ".join((p.description or "").split()) for p in doc.params}
    return _Documented("\n\n".join(parts), parameters)
