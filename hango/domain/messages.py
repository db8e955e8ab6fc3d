"""Messages and their blocks, with the fields of the JSON API and the database."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal, TypeAlias
from uuid import UUID

import attrs

from hango.domain.values import JsonObject, new_id


class StopReason(StrEnum):
    """Why the model stopped; the same values for all providers."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    REFUSAL = "refusal"
    PAUSE_TURN = "pause_turn"
    CONTEXT_EXCEEDED = "context_exceeded"


@attrs.frozen
class Usage:
    """Tokens of one turn, or of a whole run.

    Attributes:
        input_tokens: all that was sent, cached tokens included.
        output_tokens: all that came back, reasoning included.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    reasoning_output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Sum two usages, field by field."""
        mine, theirs = attrs.astuple(self), attrs.astuple(other)
        return Usage(*(a + b for a, b in zip(mine, theirs, strict=True)))


def sum_usage(*parts: Usage | None) -> Usage | None:
    """Return the sum of those that are known; None, which is not 0, if none is."""
    known = [part for part in parts if part is not None]
    return sum(known, Usage()) if known else None


@attrs.frozen
class TextBlock:
    """Plain text."""

    TYPE: ClassVar = "text"
    text: str


@attrs.frozen
class ThinkingBlock:
    """A model's reasoning; if signed, it is sent back to its provider unchanged.

    Attributes:
        provider: who signed it; None where that is not known.
    """

    TYPE: ClassVar = "thinking"
    thinking: str
    signature: str = ""
    provider: str | None = None


@attrs.frozen
class RedactedThinkingBlock:
    """Reasoning that the provider encrypted; sent back unchanged.

    Attributes:
        provider: who encrypted it; None where that is not known.
    """

    TYPE: ClassVar = "redacted_thinking"
    data: str
    provider: str | None = None


@attrs.frozen
class ToolUseBlock:
    """A tool call that the model requested.

    Attributes:
        input: the arguments; empty when `raw_input` is set.
        raw_input: the arguments as they came, bounded, when they are not a JSON object.  Such a call
            is answered with an error and its tool never runs; the text is kept for people and is
            never sent back to a provider.
    """

    TYPE: ClassVar = "tool_use"
    id: str
    name: str
    input: JsonObject = attrs.field(factory=dict)
    raw_input: str | None = None


@attrs.frozen
class ToolResultBlock:
    """The result of a tool call.

    Attributes:
        content: what the model sees; never empty for an error.
        for_user: what a person sees, only when it differs; never sent to a provider.
    """

    TYPE: ClassVar = "tool_result"
    tool_use_id: str
    content: str
    is_error: bool = False
    for_user: str | None = None


@attrs.frozen
class OpaqueBlock:
    """A block in the format of one provider, kept so that it can be sent back to it."""

    TYPE: ClassVar = "opaque"
    provider: str
    raw: JsonObject


Block: TypeAlias = (
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock | OpaqueBlock
)
MessageRole: TypeAlias = Literal["user", "assistant"]


def joined_text(content: Iterable[Block], separator: str = "") -> str:
    """Return the text of a message: that of its text blocks that are not blank, in order."""
    texts = (block.text for block in content if isinstance(block, TextBlock))
    return separator.join(text for text in texts if text.strip())


@attrs.frozen
class NewMessage:
    """A message about to be stored.

    Attributes:
        run_id, turn: which turn of which run it belongs to (0 is the input); both None for one made
            through the API.  With `role` they are its key: a second store of it changes nothing.
        partial: it is what had arrived of an answer that was cut short.
        synthetic: hango wrote it, not a person, model or tool.
    """

    role: MessageRole
    content: tuple[Block, ...]
    run_id: UUID | None = None
    turn: int | None = None
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    partial: bool = False
    synthetic: bool = False
    id: UUID = attrs.field(factory=new_id)


@attrs.frozen
class Message:
    """A stored message: a `NewMessage` with its position in a session.

    Attributes:
        seq: orders the session's messages, from 1, without gaps.
    """

    id: UUID
    session_id: UUID
    seq: int
    role: MessageRole
    content: tuple[Block, ...]
    run_id: UUID | None
    turn: int | None
    stop_reason: StopReason | None
    usage: Usage | None
    partial: bool
    synthetic: bool
    created_at: datetime
