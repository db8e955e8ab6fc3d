"""Tools: what a function becomes, and what cannot become one."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal, cast
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from hango.domain import Effects, JsonObject, Scope, ToolContext
from hango.errors import RegistrationError
from hango.tools import Tool, tool
from hango.tools.signature import Function

from support.tools import call_one


@tool(effects=Effects.READ_ONLY)
async def weather(city: str, days: int = 1, *, unit: Literal["c", "f"] = "c") -> str:
    """Tell the weather.

    From a model of the atmosphere.

    Args:
        city: Where,
            in any language.
        days: How many.
        unit: Celsius or Fahrenheit.

    Returns:
        A sentence.
    """
    return f"{city} {days} {unit}"


# --- what a function becomes ----------------------------------------------------------------


def test_signature_and_docstring_become_a_closed_schema() -> None:
    """Types and defaults come from the signature, words from the docstring."""
    assert weather.name == "weather"
    assert weather.description == "Tell the weather.\n\nFrom a model of the atmosphere."
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where, in any language."},
            "days": {"type": "integer", "default": 1, "description": "How many."},
            "unit": {
                "type": "string",
                "enum": ["c", "f"],
                "default": "c",
                "description": "Celsius or Fahrenheit.",
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


async def test_arguments_reach_the_parameters_of_their_name() -> None:
    """What is not given keeps the function's own default."""
    assert (await call_one(weather, city="Paris")).for_llm == "Paris 1 c"
    assert (await call_one(weather, city="Paris", days=2, unit="f")).for_llm == "Paris 2 f"


def test_a_function_without_parameters_or_docstring_is_a_tool() -> None:
    """Nothing is required but the effects."""

    @tool(effects=Effects.IDEMPOTENT, name="other-name", timeout=2.5)
    def ping() -> None: ...

    assert ping.name == "other-name"
    assert ping.timeout == 2.5
    assert ping.description == ""
    assert ping.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    "name", ["schema", "copy", "json", "self", "model_config", "validate", "_private", "class_", "p0"]
)
async def test_any_name_may_be_a_parameter(name: str) -> None:
    """What a library calls its own attributes does not limit what parameters are called."""
    space: dict[str, Callable[..., object]] = {}  # type: ignore[explicit-any]  # any parameters
    exec(f"def f({name}: int, p1: int = 0) -> int: return {name} + p1", space)  # noqa: S102  # many names
    made = tool(effects=Effects.READ_ONLY)(space["f"])
    assert (await call_one(made, **{name: 4})).for_llm == "4"


ABSENT = object()


class Colour(Enum):
    """An enumeration of the test."""

    RED = "red"


class Point(BaseModel):  # type: ignore[explicit-any]  # pydantic's own
    """A model of the test."""

    x: int
    title: str = "origin"


@dataclass
class Line:
    """A dataclass of the test."""

    start: Point
    days: list[date]


class Tree(BaseModel):  # type: ignore[explicit-any]  # pydantic's own
    """A model that contains itself."""

    leaves: list[Tree] = []


async def test_rich_types_arrive_as_python_objects() -> None:
    """Nested models, dates and enumerations are described to the model and made for the function."""

    @tool(effects=Effects.READ_ONLY)
    def measure(
        line: Line, colour: Colour, size: Annotated[int, Field(ge=1, description="In m.")]
    ) -> str:
        """Measure.

        Args:
            line: What.
            colour: In which colour.
            size: Of the docstring.
        """
        assert isinstance(line.start, Point)
        return f"{line.start.x} {line.days[0].year} {colour.name} {size}"

    good = {"line": {"start": {"x": 1}, "days": ["2026-01-02"]}, "colour": "red", "size": 2}
    assert (await call_one(measure, **good)).for_llm == "1 2026 RED 2"
    assert measure.parameters["properties"]["size"] == {  # type: ignore[index]  # of JSON
        "type": "integer",
        "minimum": 1,
        "description": "In m.",
    }
    for wrong in (
        {"size": 0},
        {"colour": "blue"},
        {"line": {"start": {"x": 1, "z": 2}, "days": []}},
        {"line": {"start": {"x": 1}, "days": ["yesterday"]}},
    ):
        result = await call_one(measure, **(good | wrong))
        assert result.is_error
        assert "did not run" in result.for_llm


def test_nested_objects_are_closed_and_a_property_called_title_stays() -> None:
    """Generated titles go, properties do not."""

    @tool(effects=Effects.READ_ONLY)
    def draw(point: Point) -> None: ...

    definition = draw.parameters["$defs"]["Point"]  # type: ignore[index]  # of JSON
    assert definition["additionalProperties"] is False
    assert set(definition["properties"]) == {"x", "title"}
    assert definition["properties"]["title"] == {"type": "string", "default": "origin"}


async def test_a_recursive_type_is_resolved_in_place() -> None:
    """C13: a schema may refer to itself as long as values end."""

    @tool(effects=Effects.READ_ONLY)
    def count(tree: Tree) -> int:
        return len(tree.leaves)

    assert (await call_one(count, tree={"leaves": [{"leaves": []}, {}]})).for_llm == "2"
    assert (await call_one(count, tree={"leaves": [{"twigs": []}]})).is_error


async def test_a_default_that_is_not_json_is_left_out_of_the_schema() -> None:
    """The function still gets it."""
    marker = object()

    @tool(effects=Effects.READ_ONLY)
    def pick(value: Annotated[object, "anything"] = marker) -> bool:
        return value is marker

    assert "default" not in json.dumps(pick.parameters)
    assert (await call_one(pick)).for_llm == "true"


@pytest.mark.parametrize(
    ("annotation", "default", "written"),
    [
        (Colour, Colour.RED, "red"),
        (datetime, datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00Z"),
        (date, date(2020, 1, 1), "2020-01-01"),
        (Decimal, Decimal("0.10"), "0.10"),
        (
            Line,
            Line(Point(x=1), [date(2020, 1, 1)]),
            {"start": {"x": 1, "title": "origin"}, "days": ["2020-01-01"]},
        ),
        (tuple[int, ...], (1, 2), [1, 2]),
        (float, math.nan, ABSENT),
        (int | None, None, None),
    ],
)
async def test_a_default_is_written_as_pydantic_does(
    annotation: object, default: object, written: object
) -> None:
    """N05: an enum, a date, a decimal, a dataclass; and the function gets its own."""

    def pick(value: object = default) -> bool:
        return value is default

    pick.__annotations__["value"] = annotation
    made = tool(effects=Effects.READ_ONLY)(pick)
    properties = cast("dict[str, JsonObject]", made.parameters["properties"])
    assert properties["value"].get("default", ABSENT) == written
    assert (await call_one(made)).for_llm == "true"


def test_a_text_in_an_annotation_describes_its_parameter() -> None:
    """W-L6: the docstring's own words win."""

    @tool(effects=Effects.READ_ONLY)
    def read(number: Annotated[str, "a number"], page: Annotated[int, "which page"] = 1) -> None:  # noqa: D417  # its annotation says it
        """Read.

        Args:
            number: Of the article.
        """

    properties = cast("dict[str, JsonObject]", read.parameters["properties"])
    assert properties["number"]["description"] == "Of the article."
    assert properties["page"]["description"] == "which page"


async def test_annotations_are_read_as_far_as_they_are_needed() -> None:
    """N11: what is returned is not, and names of the function round it are known."""
    local = Colour

    class Wall(BaseModel):  # type: ignore[explicit-any]  # pydantic's own
        colour: Colour

    @tool(effects=Effects.READ_ONLY)
    def wash(wall: Wall) -> str:
        return wall.colour.name

    assert (await call_one(wash, wall={"colour": "red"})).for_llm == "RED"

    @tool(effects=Effects.READ_ONLY)
    def paint(colour: local) -> Money:  # type: ignore[name-defined, valid-type]  # noqa: F821  # for checkers only
        return local(colour).name

    assert (await call_one(paint, colour="red")).for_llm == "RED"


class Spoken:
    """An object whose call is async."""

    async def __call__(self, context: ToolContext, text: str = "said") -> str:
        """Say *text*."""
        return f"{context.call_id} {text}"


@pytest.mark.rule(19)
@pytest.mark.parametrize("function", [Spoken(), Spoken().__call__, functools.partial(Spoken())])
async def test_whatever_is_async_is_awaited(function: Function) -> None:
    """A tool's function may be an object, or a partial of one; both are looked into."""
    made = Tool("t", "", {"type": "object"}, Effects.READ_ONLY, function)
    assert (await call_one(made, text="hi")).for_llm == "c1 hi"
    assert not made.in_thread


async def test_the_context_is_given_and_not_part_of_the_schema() -> None:
    """A first parameter annotated ToolContext receives the call's own."""

    @tool(effects=Effects.READ_ONLY)
    async def who(context: ToolContext, greeting: str) -> str:
        assert context.scope is None or isinstance(context.scope, Scope)
        return f"{greeting} {context.call_id} {context.idempotency_key}"

    assert set(who.parameters["properties"]) == {"greeting"}  # type: ignore[call-overload]  # of JSON
    assert (await call_one(who, greeting="hi")).for_llm == f"hi c1 {UUID(int=7)}:2:1"


async def test_a_parameter_called_context_of_another_type_is_an_argument() -> None:
    """The annotation decides, not the name."""

    @tool(effects=Effects.READ_ONLY)
    def quote(context: str) -> str:
        return context

    assert (await call_one(quote, context="c")).for_llm == "c"


# --- what cannot become one -----------------------------------------------------------------


def test_missing_effects_name_the_function_and_its_module() -> None:
    """There is no default for what happens when a tool runs twice."""

    def careless() -> None: ...

    for decorate in (tool, tool()):  # type: ignore[call-overload]  # the mistake under test
        with pytest.raises(RegistrationError, match=f"careless.*{__name__}.*effects"):
            decorate(careless)  # type: ignore[call-overload]  # the mistake under test


@pytest.mark.parametrize("name", ["", "with space", "dot.dot", "ümlaut", "a" * 65, "a\n", 5])
def test_a_name_models_cannot_call_is_refused(name: str) -> None:
    """All providers take the same names."""
    with pytest.raises(RegistrationError, match="name"):
        tool(effects=Effects.READ_ONLY, name=name)(lambda: None)


def unannotated(city) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, D103  # the mistake under test
    del city


def variadic(*cities: str) -> None:  # noqa: D103
    del cities


def open_ended(**cities: str) -> None:  # noqa: D103
    del cities


def positional(city: str, /) -> None:  # noqa: D103
    del city


def late_context(city: str, context: ToolContext) -> None:  # noqa: D103
    del city, context


def unresolvable(city: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: D103, F821
    del city


def not_json(city: AsyncIterator[str]) -> None:  # noqa: D103
    del city


def no_schema(city: Callable[[], None]) -> None:  # noqa: D103
    del city


def generator() -> Iterator[str]:  # noqa: D103
    yield ""


async def async_generator() -> AsyncIterator[str]:  # noqa: D103
    yield ""


class Callee:
    """An object that can be called, and is no function."""

    def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "function",
    [
        unannotated,
        variadic,
        open_ended,
        positional,
        late_context,
        unresolvable,
        not_json,
        no_schema,
        generator,
        async_generator,
        Callee(),
        Callee,
        functools.partial(positional),
    ],
)
def test_a_function_that_cannot_be_called_by_a_model_is_refused(function: Callable[[], None]) -> None:
    """The error comes when decorating, and names the module."""
    with pytest.raises(RegistrationError, match=f"{__name__}|functools"):
        tool(effects=Effects.READ_ONLY, name="broken")(function)


def method(self, city: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, D103  # as in a class
    del self, city


def maybe_context(context: ToolContext | None, city: str) -> None:  # noqa: D103
    del context, city


@pytest.mark.parametrize(
    ("function", "hint"),
    [(method, "bound method"), (maybe_context, "ToolContext is the first parameter")],
)
def test_a_common_mistake_is_named(function: Function, hint: str) -> None:
    """W-L5: with what to do, not in the words of a library."""
    with pytest.raises(RegistrationError, match=hint) as raised:
        tool(effects=Effects.READ_ONLY)(function)
    assert "pydantic" not in str(raised.value)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5s", True])
def test_a_timeout_is_a_number_of_seconds(timeout: float) -> None:
    """W-L5: a tool without end would hold its run."""
    with pytest.raises(RegistrationError, match="timeout must be a number of seconds above 0, not "):
        tool(effects=Effects.READ_ONLY, name="t", timeout=timeout)(lambda: None)


def test_effects_are_one_of_four() -> None:
    """Also when the word comes as text."""
    assert tool(effects="read_only", name="t")(lambda: None).effects is Effects.READ_ONLY
    with pytest.raises(RegistrationError, match=r"one of read_only, .* not 'harmless'"):
        tool(effects="harmless", name="t")(lambda: None)  # type: ignore[call-overload]
