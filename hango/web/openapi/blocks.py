"""The schemas of messages and of the blocks they are made of."""

from __future__ import annotations

from collections.abc import Mapping

from hango.domain import JsonObject, StopReason
from hango.web.openapi.words import COUNT, ID, NO_ID, TEXT, TIME, maybe, named, one_of, shape
from hango.web.sessions import MOST_BLOCKS

_KINDS = {
    "text": "TextBlock",
    "thinking": "ThinkingBlock",
    "redacted_thinking": "RedactedThinkingBlock",
    "tool_use": "ToolUseBlock",
    "tool_result": "ToolResultBlock",
    "opaque": "OpaqueBlock",
}
_NO_TEXT: JsonObject = {"type": ["string", "null"]}
_USERS = ("text", "tool_result", "opaque")
_ASSISTANTS = ("text", "thinking", "redacted_thinking", "tool_use", "opaque")


def _block(
    kind: str,
    description: str,
    members: Mapping[str, JsonObject],
    optional: Mapping[str, JsonObject] | None = None,
) -> JsonObject:
    return shape(description, {"type": {"const": kind}, **members}, optional)


def _any(kinds: tuple[str, ...]) -> JsonObject:
    return {
        "oneOf": [named(_KINDS[kind]) for kind in kinds],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind: f"#/components/schemas/{_KINDS[kind]}" for kind in kinds},
        },
    }


_SAYS_SOMETHING: JsonObject = {
    "anyOf": [
        {"properties": {"type": {"not": {"const": "text"}}}},
        {"properties": {"text": {"pattern": r"\S"}}},
    ]
}


def _said(kinds: tuple[str, ...]) -> JsonObject:
    blocks = {
        "type": "array",
        "items": _any(kinds),
        "minItems": 1,
        "maxItems": MOST_BLOCKS,
        "contains": _SAYS_SOMETHING,
    }
    text = {"type": "string", "pattern": r"\S"}
    return {"description": "A text, or blocks; not blank.", "anyOf": [text, blocks]}


INPUT = _said(("text",))

BLOCKS: Mapping[str, JsonObject] = {
    "TextBlock": _block("text", "Plain text.", {"text": TEXT}),
    "ThinkingBlock": _block(
        "thinking", "A model's reasoning.", {"thinking": TEXT}, {"signature": TEXT}
    ),
    "RedactedThinkingBlock": _block(
        "redacted_thinking", "Reasoning that the provider encrypted.", {"data": TEXT}
    ),
    "ToolUseBlock": _block(
        "tool_use",
        "A call the model asks for.",
        {"id": TEXT, "name": TEXT},
        {
            "input": {"type": "object"},
            "raw_input": {**_NO_TEXT, "description": "What came where `input` should have been."},
        },
    ),
    "ToolResultBlock": _block(
        "tool_result",
        "What a call came to.",
        {"tool_use_id": TEXT, "content": TEXT},
        {
            "is_error": {"type": "boolean"},
            "for_user": {**_NO_TEXT, "description": "What a person sees, where that differs."},
        },
    ),
    "OpaqueBlock": _block(
        "opaque",
        "A block of one provider, kept so that it can be sent back.",
        {"provider": TEXT, "raw": {"type": "object"}},
    ),
    "Block": _any(tuple(_KINDS)),
}

MESSAGE: Mapping[str, JsonObject] = {
    "Usage": shape(
        "Tokens of one turn, or of a whole run.",
        {
            "input_tokens": {**COUNT, "description": "All that was sent, cached tokens included."},
            "output_tokens": COUNT,
            "cache_read_input_tokens": COUNT,
            "cache_write_input_tokens": COUNT,
            "reasoning_output_tokens": COUNT,
        },
    ),
    "Message": shape(
        "A message of a session.",
        {
            "id": ID,
            "session_id": ID,
            "seq": {"type": "integer", "minimum": 1, "description": "Its place; there are no gaps."},
            "run_id": {**NO_ID, "description": "Null: it came through the API."},
            "turn": {"type": ["integer", "null"], "minimum": 0, "description": "0 is the input."},
            "role": {"enum": ["user", "assistant"]},
            "content": {"type": "array", "items": named("Block")},
            "stop_reason": maybe(one_of(StopReason)),
            "usage": maybe(named("Usage")),
            "partial": {"type": "boolean", "description": "An answer that was cut short."},
            "synthetic": {"type": "boolean", "description": "Written by hango."},
            "created_at": TIME,
        },
    ),
    "NewMessage": {
        "oneOf": [
            shape("", {"role": {"const": "user"}, "content": _said(_USERS)}),
            shape("", {"role": {"const": "assistant"}, "content": _said(_ASSISTANTS)}),
        ]
    },
}
