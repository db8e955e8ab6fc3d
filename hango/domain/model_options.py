"""What an agent may ask of its model beyond a prompt and tools: `ModelOptions`.

Rule: one vocabulary for all providers.  A provider renders what its API has, and refuses the rest when
the agent is written; nothing is dropped silently.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping

import attrs

from hango.domain.names import is_api_name
from hango.domain.values import JsonObject
from hango.errors import InvalidInput

MAX_TOKENS = 10_000_000
MAX_TEMPERATURE = 2.0  # OpenAI's bound; a provider may have a lower one
# The vendors' words together; each model takes some of them
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MAX_STOP_SEQUENCES = 16
MAX_STOP_SEQUENCE = 200  # characters
MAX_EXTRA = 16 * 1024  # characters of JSON
# Values of `tool_choice` beside the names of tools
TOOL_CHOICES = ("auto", "none", "required")


@attrs.frozen
class ModelOptions:
    """What an agent asks of its model; None or empty leaves it to the provider.

    Attributes:
        temperature: randomness, from 0.
        top_p: the share of likely tokens to choose from, above 0 and at most 1.
        max_tokens: of one answer; if the agent's limits have a bound too, the smaller one holds.
        reasoning_effort: one of `EFFORTS`.
        thinking_budget: tokens of reasoning in one answer.
        tool_choice: ``auto``, ``none``, ``required``, or the name of the tool that must be called.  The
            latter two hold for the first answer of a run: asked for in each, no run would end.
        parallel_tool_calls: whether one answer may have several calls.
        stop_sequences: texts at which an answer ends.
        extra: further members of the request's body, sent as they are.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    stop_sequences: tuple[str, ...] = ()
    extra: JsonObject = attrs.field(factory=dict)

    def given(self) -> dict[str, object]:
        """Return the options that are set, by name, in the order of their declaration."""
        values = attrs.asdict(self, recurse=False)
        return {name: value for name, value in values.items() if value not in (None, (), {})}

    def max_tokens_within(self, limit: int | None) -> int | None:
        """Return the bound on one answer, the smaller of the option and *limit*; None for neither."""
        return min((bound for bound in (self.max_tokens, limit) if bound is not None), default=None)

    def in_turn(self, turn: int) -> ModelOptions:
        """Return the options for the answer of *turn*, from 1."""
        if turn == 1 or self.tool_choice in (None, "auto", "none"):
            return self
        return attrs.evolve(self, tool_choice=None)

    def check(self) -> None:
        """Check types and bounds, which are the same for all providers.

        Raises:
            InvalidInput: its field names the first option that cannot be used.
        """
        for name, value in self.given().items():
            if problem := next(_CHECKS[name](value), None):
                raise InvalidInput(problem, field=name)


_Check = Callable[[object], Iterator[str]]


def _number(low: float, high: float, *, above: bool = False) -> _Check:
    def check(value: object) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            yield "must be a number"
        elif value < low or value > high or (above and value == low):
            yield f"must be {'above' if above else 'at least'} {low:g} and at most {high:g}"

    return check


def _integer(low: int, high: int) -> _Check:
    def check(value: object) -> Iterator[str]:
        if type(value) is not int or not low <= value <= high:
            yield f"must be a whole number from {low} to {high}"

    return check


def _effort(value: object) -> Iterator[str]:
    if value not in EFFORTS:
        yield f"must be one of {', '.join(EFFORTS)}"


def _tool_choice(value: object) -> Iterator[str]:
    if type(value) is not str or not is_api_name(value):
        yield f"must be one of {', '.join(TOOL_CHOICES)}, or the name of a tool"


def _boolean(value: object) -> Iterator[str]:
    if type(value) is not bool:
        yield "must be true or false"


def _stop_sequences(value: object) -> Iterator[str]:
    if not isinstance(value, tuple) or not all(type(text) is str and text for text in value):
        yield "must be texts that are not empty"
    elif len(value) > MAX_STOP_SEQUENCES or any(len(text) > MAX_STOP_SEQUENCE for text in value):
        yield f"must be at most {MAX_STOP_SEQUENCES} texts of {MAX_STOP_SEQUENCE} characters each"


def _object(limit: int) -> _Check:
    def check(value: object) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield "must be an object"
            return
        try:
            size = len(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            yield "must be JSON"
            return
        if size > limit:
            yield f"must be at most {limit} characters of JSON"

    return check


_CHECKS: Mapping[str, _Check] = {
    "temperature": _number(0, MAX_TEMPERATURE),
    "top_p": _number(0, 1, above=True),
    "max_tokens": _integer(1, MAX_TOKENS),
    "reasoning_effort": _effort,
    "thinking_budget": _integer(1, MAX_TOKENS),
    "tool_choice": _tool_choice,
    "parallel_tool_calls": _boolean,
    "stop_sequences": _stop_sequences,
    "extra": _object(MAX_EXTRA),
}
