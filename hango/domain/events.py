"""The events of an execution: from a provider to the loop, and from the loop to event sinks."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import attrs

from hango.domain.messages import (
    Block,
    MessageRole,
    StopReason,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from hango.domain.model_options import ModelOptions
from hango.domain.tools import ToolDefinition

# --- to a provider --------------------------------------------------------------------------


@attrs.frozen
class PromptMessage:
    """One message of a request to a provider."""

    role: MessageRole
    content: tuple[Block, ...]


@attrs.frozen
class ProviderRequest:
    """One provider call.

    Attributes:
        system: the agent's own text; empty for none.
        messages: oldest first, valid for the strictest API (rule 14 of the design).
        turn: number of the turn; a provider that must make up a call id derives it from this.
        max_tokens: bound on the answer; None leaves it to the provider.
        options: what the agent asks of the model, in this turn; its `max_tokens` is in the above.
    """

    model: str
    system: str
    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolDefinition, ...]
    turn: int
    max_tokens: int | None = None
    options: ModelOptions = attrs.field(factory=ModelOptions)


# --- from a provider ------------------------------------------------------------------------
# `index` tells the blocks of one answer apart and orders them; it need not be dense.


@attrs.frozen
class BlockStart:
    """A block begins; *block* has what is known already, such as the name of a call."""

    index: int
    block: Block


@attrs.frozen
class TextDelta:
    """More text of a text block."""

    index: int
    text: str


@attrs.frozen
class ThinkingDelta:
    """More text of a thinking block."""

    index: int
    thinking: str


@attrs.frozen
class SignatureDelta:
    """The signature of a thinking block; replaces an earlier one."""

    index: int
    signature: str


@attrs.frozen
class InputDelta:
    """More of a call's arguments as JSON text, which is parsed when the answer is complete."""

    index: int
    partial_json: str


@attrs.frozen
class BlockStop:
    """A block is complete."""

    index: int


@attrs.frozen
class UsageUpdate:
    """Tokens of this call so far: cumulative, so the last one wins."""

    usage: Usage


@attrs.frozen
class Stop:
    """The answer is complete."""

    reason: StopReason


ProviderEvent: TypeAlias = (
    BlockStart
    | TextDelta
    | ThinkingDelta
    | SignatureDelta
    | InputDelta
    | BlockStop
    | UsageUpdate
    | Stop
)

# --- from the loop to who watches -----------------------------------------------------------


@attrs.frozen
class TurnStarted:
    """A provider call begins."""

    run_id: UUID
    turn: int


@attrs.frozen
class Streamed:
    """An event of the provider, unchanged."""

    run_id: UUID
    turn: int
    event: ProviderEvent


@attrs.frozen
class Retrying:
    """A provider call failed before any content and is tried again in *delay* seconds."""

    run_id: UUID
    turn: int
    code: str
    delay: float


@attrs.frozen
class TurnRestarted:
    """An answer broke off, and is asked for again in *delay* seconds.

    What was streamed of this turn so far is no part of its answer.
    """

    run_id: UUID
    turn: int
    code: str
    delay: float


@attrs.frozen
class ToolStarted:
    """A tool call begins."""

    run_id: UUID
    turn: int
    call: ToolUseBlock


@attrs.frozen
class ToolDenied:
    """A guardrail denied a tool call; it does not begin."""

    run_id: UUID
    turn: int
    call: ToolUseBlock


@attrs.frozen
class ToolFinished:
    """A tool call has succeeded, failed or was denied."""

    run_id: UUID
    turn: int
    result: ToolResultBlock


@attrs.frozen
class AttemptRejected:
    """A completion gate rejected the answer, and the model gets another attempt."""

    run_id: UUID
    turn: int
    reason: str


RunEvent: TypeAlias = (
    TurnStarted
    | Streamed
    | Retrying
    | TurnRestarted
    | ToolStarted
    | ToolDenied
    | ToolFinished
    | AttemptRejected
)
