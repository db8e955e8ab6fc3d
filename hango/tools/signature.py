"""From a function to a tool: its schema, its description, and the conversion of arguments.

inspect, pydantic and docstring-parser do the reading; this module joins what they found, and names the
parameter when they cannot.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Annotated, TypeAlias, cast, get_args, get_origin, get_type_hints

import attrs
from docstring_parser import DocstringStyle, ParseError, parse
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

from hango.codec import clean_json
from hango.domain import JsonObject, ToolContext
from hango.errors import InvalidInput
from hango.tools.schema import map_subschemas

_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=False, validate_default=False)

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
    name = next(iter(inspect.signature(function).parameters), "")
    annotation = getattr(_plain_function(function), "__annotations__", {}).get(name)
    if not isinstance(annotation, str):
        return annotation is ToolContext
    try:
        return _hints(function, only=name).get(name) is ToolContext
    except InvalidInput:
        return False  # whatever it is: a ToolContext can be found


def read_signature(function: Function, names: Mapping[str, object]) -> Signature:
    """Read *function*'s signature and docstring.

    Args:
        function: the tool's.
        names: what is known where the tool is made; annotations may use it.

    Raises:
        InvalidInput: no schema can be made from it; the text says why.
    """
    documented, hints = _documented(function), _hints(function, names)
    model = _arguments_model(function, hints)
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

    if "properties" in schema:
        _add_defaults(schema, function, hints)
    for name, text in {**_notes(hints), **documented.parameters}.items():
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", text)
    return Signature(documented.description, cast("JsonObject", _tidy(schema)), convert)


def _hints(
    function: Function, names: Mapping[str, object] | None = None, *, only: str = ""
) -> Mapping[str, object]:
    """Return the annotations of the parameters, or of *only* one; what it returns is not read."""
    plain = _plain_function(function)
    annotations = {
        name: annotation
        for name, annotation in getattr(plain, "__annotations__", {}).items()
        if name != "return" and only in ("", name)
    }
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations),
            globalns=getattr(plain, "__globals__", {}),
            localns={**(names or {}), **_closure(plain)},
            include_extras=True,
        )
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise InvalidInput(f"its annotations cannot be read: {error}") from None


def _plain_function(function: object) -> object:
    """Return the function inside partials, wrappers and objects that can be called."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.unwrap(cast("Function", getattr(function, "__func__", function)))


def _closure(function: object) -> dict[str, object]:
    """Return the names a function uses from the function round it."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    found: dict[str, object] = {}
    for name, cell in zip(names, cells, strict=True):
        with suppress(ValueError):  # a name that has no value yet
            found[name] = cell.cell_contents
    return found


def _notes(hints: Mapping[str, object]) -> Mapping[str, str]:
    """Return the texts in annotations such as ``Annotated[str, "the title"]``, by parameter."""
    return {
        name: extra
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
        for extra in get_args(hint)[1:]
        if isinstance(extra, str)
    }


# --- the schema ----------------------------------------------------------------------------


def _arguments_model(function: Function, hints: Mapping[str, object]) -> type[BaseModel]:
    """Make a model with one field a parameter.

    The fields are numbered and the parameters' names are their aliases: a model's own attributes (copy,
    schema, json) are good names for parameters.
    """
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
        hint = "; make the tool of a bound method: tool(...)(thing.method)"
        more = hint if parameter.name in ("self", "cls") else ""
        raise InvalidInput(f"parameter {parameter.name} has no annotation{more}")
    annotation = hints[parameter.name]
    if annotation is ToolContext:
        raise InvalidInput(f"ToolContext must be the first parameter, not {parameter.name}")
    if ToolContext in get_args(annotation):
        text = "a ToolContext is the first parameter, annotated with that and nothing else"
        raise InvalidInput(f"parameter {parameter.name}: {text}")
    return annotation


def _field(parameter: inspect.Parameter) -> object:
    if parameter.default is inspect.Parameter.empty:
        return Field(alias=parameter.name)
    return Field(alias=parameter.name, default_factory=lambda: parameter.default)


def _add_defaults(schema: dict[str, object], function: Function, hints: Mapping[str, object]) -> None:
    """Add the defaults that can be written as JSON, as pydantic writes them."""
    properties = cast("dict[str, dict[str, object]]", schema["properties"])
    for name, parameter in inspect.signature(function).parameters.items():
        if name in properties and parameter.default is not inspect.Parameter.empty:
            with suppress(Exception):  # whatever a type's own code raises: there is no JSON for it
                adapter: TypeAdapter[object] = TypeAdapter(hints[name])  # type: ignore[arg-type]  # data
                written = adapter.dump_python(parameter.default, mode="json", warnings=False)
                properties[name]["default"] = clean_json(written)


def _tidy(schema: object) -> object:
    """Drop generated titles and close every object that lists its properties."""
    if not isinstance(schema, dict):
        return schema
    tidy = map_subschemas({k: v for k, v in schema.items() if k != "title"}, _tidy)
    if "properties" in tidy:
        tidy.setdefault("additionalProperties", False)
    return tidy


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
