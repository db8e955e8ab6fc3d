"""What the author of an agent writes, made of data: tools, guardrails, verifiers.

One rule: it knows neither of the two libraries, so that both run the very same functions; and it needs
nothing but Python, as two environments import it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

MODEL = "the-providers-own"
RAISES = "!raise"  # in the place of an answer: the function raises


Rail: TypeAlias = Mapping[str, object]
"""A guardrail: what it answers by the first of its words that is '*', the tool or in its arguments."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """An agent, and what it is asked.

    Attributes:
        prompts: one after another, on one loop, a run each.
        tools: names of `TOOLS`, or ``todowrite``; with `BARE` before it, made without a decorator.
        model: the agent's; empty for the provider's.
        call_model: of the calls; None says nothing of it.
        verify: None for no gate, ``todos`` for what comes with the library, else see `verifier`.
        declares: what the direct door does not support.
    """

    prompts: Sequence[str] = ("Do it.",)
    tools: Sequence[str] = ()
    soul: str = ""
    model: str = ""
    call_model: str | None = None
    rails: Sequence[Rail] = ()
    verify: object = None
    verify_async: bool = False
    max_attempts: object = 3
    max_turns: int | None = None
    declares: Sequence[str] = ()


BARE = "bare_"


# --- tools ------------------------------------------------------------------------------------


def echo(text: str) -> str:
    """Say it again."""
    return text


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def noon() -> str:
    """Tell the time."""
    return "12:00"


def silent() -> str:
    """Say nothing."""
    return ""


def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


TOOLS: Mapping[str, Callable[..., str]] = {  # type: ignore[explicit-any]  # any parameters
    t.__name__: t for t in (echo, add, noon, silent, fail)
}


# --- guardrails and verifiers -----------------------------------------------------------------

Guard: TypeAlias = Callable[[str, Mapping[str, object]], object]


def guardrail(rail: Rail) -> Guard:
    """Make a function of a tool's name and arguments."""

    def judge(name: str, args: Mapping[str, object]) -> object:
        said = f" {json.dumps(args)} "
        for word, answer in rail.items():
            if word in (name, "*") or word in said:
                return _answered(answer)
        return None

    return judge


@dataclass(frozen=True)
class Seen:
    """What a verifier is asked about, of either library: names of the calls, tokens of the run."""

    calls: Sequence[str]
    tokens: int


def verifier(kind: object) -> Callable[[Seen], object]:
    """Make a verifier.

    Of a list: its verdicts one after another, the last again and again.  Of ``{"calls": n}`` or
    ``{"tokens": n}``: whether it has seen as many.
    """
    if isinstance(kind, Mapping):
        return _measure(**kind)
    assert isinstance(kind, Sequence)
    verdicts = list(kind)
    return lambda _: _answered(verdicts.pop(0) if len(verdicts) > 1 else verdicts[0])


def _measure(calls: int = 0, tokens: int = 0) -> Callable[[Seen], object]:
    def judge(seen: Seen) -> object:
        enough = len(seen.calls) >= calls and seen.tokens >= tokens
        return enough, f"seen {', '.join(seen.calls) or 'nothing'} and {seen.tokens} tokens"

    return judge


def _answered(answer: object) -> object:
    """Return *answer*, which came through JSON: a verdict in it is a list."""
    if answer == RAISES:
        raise ValueError("on purpose")
    return tuple(answer) if isinstance(answer, list) else answer
