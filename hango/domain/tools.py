"""What the loop, the tools and the store know of a tool, a call and its result."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

import attrs

from hango.domain.accounts import Scope
from hango.domain.values import JsonObject

# What the model gets of a tool that returned nothing: many APIs refuse a message without text
NO_OUTPUT = "(no output)"
# How the result of a call begins whose tool the agent does not have
UNKNOWN_TOOL = "unknown tool"


class Effects(StrEnum):
    """What happens if a tool runs twice for one call, and so what a replay of its turn does."""

    READ_ONLY = "read_only"  # nothing: it runs again
    IDEMPOTENT = "idempotent"  # nothing more than once: it runs again
    KEYED = "keyed"  # nothing, if it is given the same idempotency key: it runs again, with that key
    UNSAFE = "unsafe"  # harm: it does not run again


EffectsName: TypeAlias = Effects | Literal["read_only", "idempotent", "keyed", "unsafe"]
"""An `Effects`, or the name of one, which needs no import."""


@attrs.frozen
class Result:
    """What a tool call returned.

    Attributes:
        for_llm: what the model gets; of an error never empty.
        for_user: what a person gets; None for the same.
        is_error: whether the call failed.
    """

    for_llm: str
    for_user: str | None = None
    is_error: bool = False


@attrs.frozen
class ToolDefinition:
    """A tool as the model gets it; `parameters` is a JSON Schema (2020-12) of an object."""

    name: str
    description: str
    parameters: JsonObject


@attrs.frozen
class ToolContext:
    """What a tool may know about a call.

    Attributes:
        run_id: the run.
        turn: of the run, from 1.
        ordinal: place of the call in its turn, from 0.
        call_id: the model's id of the call.
        scope: tenant and user that the run executes for; None outside a database.
        idempotency_key: the same text whenever this very call runs again.
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
    """The ledger's record of a call that an earlier execution started.

    Attributes:
        effects: as the tool declared them then.
        result: None if the process died before recording one; the call may have taken effect.
    """

    effects: Effects
    result: Result | None = None


class Ledger(Protocol):
    """Which calls of a run were started, and their results, over all its executions.

    A call is identified by the run, turn and ordinal of its context.  Only those of `keyed` and
    `unsafe` tools are recorded.

    Raises:
        StateConflict: the run is no longer ours to execute; nothing was recorded.
        StoreUnavailable: the database stayed away; it may have been recorded.
    """

    async def begin(self, context: ToolContext, tool: str, effects: Effects) -> EarlierCall | None:
        """Record that the call is about to start; only then may the tool function run.

        Returns None the first time, and otherwise the record that there was, unchanged.  Cancelled
        midway, the call may have been recorded.
        """
        ...

    async def earlier(self, context: ToolContext) -> EarlierCall | None:
        """Return the record of the call; None if it was not started.

        Raises `StoreUnavailable` only.
        """
        ...

    async def finish(self, context: ToolContext, result: Result) -> None:
        """Record the result of a call that was started.  Repeating it changes nothing."""
        ...
