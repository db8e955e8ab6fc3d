"""Tools as the rest of hango sees them: what they are, what they are told, what they return."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import attrs

from hango.domain.accounts import Scope
from hango.domain.values import JsonObject


class Effects(StrEnum):
    """What happens if a tool runs twice for one call (see rule 9 of the design)."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    UNSAFE = "unsafe"


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
