"""A tool: a function with a name, a schema and a declaration of what happens if it runs twice.

Rule: every mistake in a tool is found when it is made, as a `RegistrationError` that names the tool and
its module.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import FrameType
from typing import cast, overload

import attrs
from jsonschema import Draft202012Validator

from hango.codec import clean_json, clean_part, clean_text, cut_text, dump_json
from hango.domain import Effects, EffectsName, JsonObject, Result, ToolContext, ToolDefinition
from hango.domain.names import API_NAME, is_api_name
from hango.domain.tools import NO_OUTPUT
from hango.errors import InvalidInput, RegistrationError
from hango.threads import RunInThread, is_async
from hango.tools.schema import check_arguments, compile_schema, inline_references
from hango.tools.signature import Function, read_signature, takes_context


def _unchecked(effects: EffectsName) -> Effects:
    """Take either spelling; `_effects` checks it where an error can name the tool."""
    return cast("Effects", effects)


def _effects(effects: object) -> Effects:
    if not isinstance(effects, str) or effects not in list(Effects):
        raise InvalidInput(f"effects must be one of {', '.join(Effects)}, not {_shown(effects)}")
    return Effects(effects)


@attrs.frozen(eq=False)
class Tool:
    """A tool.  `tool` makes one from a function; the class itself takes any schema.

    Attributes:
        name: what models call it by, unique in a registry.
        description: what models read about it; policy on when to use it belongs here.
        parameters: JSON Schema (2020-12) of an object.
        effects: what happens if it runs twice for one call.
        function: async or sync (then it runs in a thread); called with the arguments by name, after the
            context if its first parameter is annotated `ToolContext`.  Returns text, JSON-able data or
            a `Result`.
        timeout: seconds one call may take; None for the agent's or the process's limit, which holds
            also when it is the shorter one.
        _accepts: a schema that calls are checked against instead, where a tool takes more than models
            are shown.
    """

    name: str
    description: str
    parameters: JsonObject
    effects: Effects = attrs.field(converter=_unchecked)
    function: Function
    timeout: float | None = None
    _convert: Callable[[JsonObject], Mapping[str, object]] = attrs.field(default=dict, kw_only=True)
    _accepts: JsonObject | None = attrs.field(default=None, kw_only=True)
    _takes_context: bool = attrs.field(init=False)
    _validator: Draft202012Validator = attrs.field(init=False)
    _definition: ToolDefinition = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Check everything, and keep what the checks computed."""
        where = f"tool {_shown(self.name)} of {self.module}"
        try:
            self._check()
            parameters = cast("JsonObject", clean_part(self.parameters))
            context = takes_context(self.function)
            validator = compile_schema(parameters)
            if self._accepts is not None:
                validator = compile_schema(self._accepts)
            effects = _effects(self.effects)
            description = clean_text(self.description)
        except (InvalidInput, ValueError, TypeError) as error:
            raise RegistrationError(f"{where}: {error}") from None
        object.__setattr__(self, "description", description)
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "effects", effects)
        object.__setattr__(self, "_takes_context", context)
        object.__setattr__(self, "_validator", validator)
        definition = ToolDefinition(self.name, description, inline_references(parameters))
        object.__setattr__(self, "_definition", definition)

    def _check(self) -> None:
        if type(self.name) is not str or not is_api_name(self.name):
            raise InvalidInput(f"its name must match {API_NAME}")
        if not callable(self.function):
            raise InvalidInput("it has no function that can be called")
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise InvalidInput("it is a generator; a tool returns its result")
        if self.timeout is not None and not _is_duration(self.timeout):
            raise InvalidInput(f"its timeout must be a number of seconds above 0, not {self.timeout!r}")

    @property
    def module(self) -> str:
        """Where its function was written."""
        return str(getattr(self.function, "__module__", type(self.function).__module__))

    @property
    def definition(self) -> ToolDefinition:
        """Return the definition that is sent to a model."""
        return self._definition

    @property
    def in_thread(self) -> bool:
        """Whether it is sync, so that it runs in a thread."""
        return not is_async(self.function)

    def bind(self, arguments: JsonObject) -> Mapping[str, object]:
        """Check *arguments* and return the parameters of the function, by name.

        Raises:
            InvalidInput: they violate the schema; the function has not run.
        """
        clean = cast("JsonObject", clean_json(arguments))
        check_arguments(self._validator, clean)
        return self._convert(clean)

    async def invoke(
        self, bound: Mapping[str, object], context: ToolContext, run_in_thread: RunInThread
    ) -> object:
        """Call the function with what `bind` returned; returns and raises what the function does.

        A sync function runs by *run_in_thread*.  If cancelled, it goes on in its thread and its result
        is dropped.
        """
        before = (context,) if self._takes_context else ()
        function = partial(self.function, *before, **bound)
        if self.in_thread:
            return await run_in_thread(function)
        return await cast("Awaitable[object]", function())


def as_result(value: object) -> Result:
    """Make a result from what a tool returned.

    Raises:
        InvalidInput: it is neither text nor JSON-able data nor a `Result` of such.
    """
    if inspect.iscoroutine(value):
        value.close()  # or Python warns that nobody awaited it
    if not isinstance(value, Result):
        return Result(_as_text(value))
    for_user = None if value.for_user is None else _as_text(value.for_user)
    return Result(_as_text(value.for_llm), for_user, is_error=bool(value.is_error))


def _as_text(value: object) -> str:
    if value is None:
        return NO_OUTPUT
    # a subclass of str (an enum's, a template's) is taken as plain text
    return (str.__str__(value) or NO_OUTPUT) if isinstance(value, str) else dump_json(value)


def _is_duration(seconds: object) -> bool:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return number and 0 < cast("float", seconds) < math.inf


def _shown(name: object) -> str:
    return cut_text(repr(name), 80)


# --- the decorator --------------------------------------------------------------------------


@overload
def tool(
    *, effects: EffectsName, timeout: float | None = None, name: str | None = None
) -> Callable[[Function], Tool]: ...
@overload
def tool(
    function: Function,
    /,
    *,
    effects: EffectsName,
    timeout: float | None = None,
    name: str | None = None,
) -> Tool: ...
def tool(
    function: Function | None = None,
    /,
    *,
    effects: EffectsName | None = None,
    timeout: float | None = None,
    name: str | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a `Tool` from an async or sync function.

    The schema comes from the signature (every parameter needs an annotation) and the docstring, whose
    Args section describes the parameters.

    Args:
        function: the function, when used without parentheses.
        effects: what happens if the tool runs twice for one call; there is no default.
        timeout: seconds one call may take; None for the limit of the agent or the process.
        name: None for the function's own.

    Raises:
        RegistrationError: when decorating; names the function and its module.
    """
    caller = cast("FrameType", inspect.currentframe()).f_back
    names = dict(caller.f_locals) if caller is not None else {}

    def decorate(function: Function) -> Tool:
        return _tool_of(function, effects, timeout, name, names)

    return decorate if function is None else decorate(function)


def _tool_of(
    function: Function,
    effects: EffectsName | None,
    timeout: float | None,
    name: str | None,
    names: Mapping[str, object],
) -> Tool:
    own_name: str = getattr(function, "__name__", "?")
    module = getattr(function, "__module__", None)
    where = f"tool {_shown(name or own_name)} ({own_name} of {module})"
    if not inspect.isroutine(function):
        raise RegistrationError(f"{where}: only a function can be made a tool")
    if effects is None:
        choice = ", ".join(Effects)
        raise RegistrationError(f"{where}: declare its effects=, one of {choice}; there is no default")
    try:
        signature = read_signature(function, names)
    except InvalidInput as error:
        raise RegistrationError(f"{where}: {error}") from None
    return Tool(
        name=own_name if name is None else name,
        description=signature.description,
        parameters=signature.parameters,
        effects=effects,
        function=function,
        timeout=timeout,
        convert=signature.convert,
    )
