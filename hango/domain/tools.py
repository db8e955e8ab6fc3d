"""Tools as the rest of hango sees them: what they are, what they are told, what they return."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol
from uuid import UUID

import attrs

from hango.domain.accounts import Scope
from hango.domain.values import JsonObject

# What the model gets of a tool that returned nothing: many APIs refuse a message without text
NO_OUTPUT = "(no output)"


class Effects(StrEnum):
    """What happens if a tool runs twice for one call; so what is done when its turn is re-driven."""

    READ_ONLY = "read_only"  # nothing: it runs again
    IDEMPOTENT = "idempotent"  # nothing more than once: it runs again
    KEYED = "keyed"  # nothing, if it is given the same idempotency key: it runs again, with that key
    UNSAFE = "unsafe"  # harm: it does not run again


@attrs.frozen
class Result:
    """What a tool came to.

    Attributes:
        for_llm: what the model sees; an error's is never empty.
        for_user: what a person sees; None falls back to `for_llm`.
    """

    for_llm: str
    for_user: str | None = None
    is_error: bool = False


@attrs.frozen
class ToolDefinition:
    """A tool as a model is told of it; `parameters` is a JSON Schema (2020-12) of an object."""

    name: str
    description: str
    parameters: JsonObject


@attrs.frozen
class ToolContext:
    """What a tool may know about the call it answers.

    Attributes:
        ordinal: place of the call in its turn, from 0.
        idempotency_key: the same text whenever this very call runs again.
        scope: on whose behalf the run executes.
    """

    run_id: UUID
    turn: int
    ordinal: int
    call_id: str
    scope: Scope | None = None

    @property
    def idempotency_key(self) -> str:
        """The call's key: run, turn and ordinal, so the same after a crash."""
        return f"{self.run_id}:{self.turn}:{self.ordinal}"


@attrs.frozen
class EarlierCall:
    """What an earlier execution left of a call that it began.

    Attributes:
        effects: as the tool declared them then.
        result: what the call came to; None when nobody lived to tell, so that it may have taken effect.
    """

    effects: Effects
    result: Result | None = None


class Ledger(Protocol):
    """Which calls of a run were begun, and what came of them, over all its executions.

    A call is known by the run, turn and ordinal of its context.  Only calls of `keyed` and `unsafe`
    tools are kept.

    Raises:
        StateConflict: the run is no longer ours to execute; nothing was recorded.
        StoreUnavailable: the database stayed away; it may have been recorded.
    """

    async def begin(self, context: ToolContext, tool: str, effects: Effects) -> EarlierCall | None:
        """Record that the call is about to start; only then may its body run.

        Returns None when it is the first time, and otherwise what there was, unchanged.  Cancelled
        midway, it may have been recorded.
        """
        ...

    async def earlier(self, context: ToolContext) -> EarlierCall | None:
        """Return what an earlier execution left of the call; None if it was not begun.

        Raises `StoreUnavailable` only.
        """
        ...

    async def finish(self, context: ToolContext, result: Result) -> None:
        """Record what a call that was begun came to.  Repeating it changes nothing."""
        ...
