"""Words to write streams of the Messages API in, for tests of its adapter.

Its one rule: each function writes what the API sends, and nothing around it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

USAGE: Mapping[str, object] = {"input_tokens": 10, "output_tokens": 1}


def event(kind: str, **fields: object) -> str:
    """Write one event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def begin(usage: Mapping[str, object] | None = USAGE) -> str:
    """Write the head of a message."""
    message: Mapping[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": usage,
    }
    return event("message_start", message={**message, "model": "m", "stop_reason": None})


def block(index: int, content: Mapping[str, object], *deltas: Mapping[str, object]) -> str:
    """Write one whole block."""
    written = [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    start = event("content_block_start", index=index, content_block=content)
    return "".join([start, *written, event("content_block_stop", index=index)])


def text(index: int, *pieces: str) -> str:
    """Write a text block."""
    return block(
        index,
        {"type": "text", "text": ""},
        *({"type": "text_delta", "text": piece} for piece in pieces),
    )


def use(index: int, call_id: str, name: str, *pieces: str, **more: object) -> str:
    """Write a call; *pieces* are those of its input."""
    content = {"type": "tool_use", "id": call_id, "name": name, "input": {}, **more}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(index, content, *deltas)


def end(
    reason: str | None = "end_turn", usage: Mapping[str, object] | None = None, **delta: object
) -> str:
    """Write the end of a message."""
    told = {"output_tokens": 5} if usage is None else usage
    found = {"stop_reason": reason, "stop_sequence": None, **delta}
    return event("message_delta", delta=found, usage=told) + event("message_stop")


def message(*blocks: str, reason: str = "end_turn") -> str:
    """Write a whole answer."""
    return "".join([begin(), *blocks, end(reason)])
