"""Content in spans: prompts, answers, arguments and results; recorded only if the operator asks for it.

Values are JSON in the shape of the GenAI conventions: messages with a role and parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from hango.domain import (
    Block,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.redaction import redact

_MAX = 64 * 1024  # characters of one attribute; collectors drop spans of some megabytes

_PARTS_THAT_ASK = frozenset({"SPAN_ONLY", "SPAN_AND_EVENT"})
_GENERAL = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_switch = {"recorded": False}  # of the process, as the tracer provider is


def asked_for(environ: Mapping[str, str]) -> bool:
    """Return whether the standard variable asks for content in spans."""
    return environ.get(_GENERAL, "").strip().upper() in _PARTS_THAT_ASK


def record(*, on: bool) -> None:
    """Record content from now on, or do not."""
    _switch["recorded"] = on


def recorded() -> bool:
    """Return whether content is recorded."""
    return _switch["recorded"]


class Utterance(Protocol):
    """A message."""

    @property
    def role(self) -> str:
        """Who said it."""
        ...

    @property
    def content(self) -> tuple[Block, ...]:
        """What was said."""
        ...


def messages(said: Iterable[Utterance]) -> str:
    """Return the messages as JSON; the latest that fit, and at least the last."""
    found: list[str] = []
    size = 0
    for message in reversed([*said]):
        text = json.dumps(_message(message.role, message.content), ensure_ascii=False)
        size += len(text)
        if found and size > _MAX:
            break
        found.append(text)
    return cut(f"[{', '.join(reversed(found))}]")


def answer(parts: Sequence[Mapping[str, str]]) -> str:
    """Return what a model has said as JSON."""
    return cut(json.dumps([{"role": "assistant", "parts": list(parts)}], ensure_ascii=False))


def arguments(call: ToolUseBlock) -> str:
    """Return the arguments of a call as JSON."""
    return cut(call.raw_input or json.dumps(dict(call.input), ensure_ascii=False))


def cut(text: str) -> str:
    """Return *text* without secrets, as far as there is room."""
    return redact(text[:_MAX])


def _message(role: str, content: Iterable[Block]) -> Mapping[str, object]:
    return {"role": role, "parts": [part for block in content if (part := _part(block))]}


def _part(block: Block) -> Mapping[str, object] | None:
    match block:
        case TextBlock(text):
            return {"type": "text", "content": text}
        case ThinkingBlock(thinking):
            return {"type": "reasoning", "content": thinking}
        case ToolUseBlock():
            call = {"id": block.id, "name": block.name, "arguments": dict(block.input)}
            return {"type": "tool_call", **call}
        case ToolResultBlock():
            return {
                "type": "tool_call_response",
                "id": block.tool_use_id,
                "response": block.content,
            }
    return None
