"""What the rows of the tables of Chat Completions streams are, and the words they are written in.

Its one rule: only what several tables need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs

from hango.domain import (
    Block,
    OpaqueBlock,
    StopReason,
    ToolUseBlock,
    Usage,
)

from support.llm_server import delta, finish, sse

TOKYO, BERLIN = {"timezone": "Asia/Tokyo"}, {"timezone": "Europe/Berlin"}
TOKYO_TEXT, BERLIN_TEXT = '{"timezone": "Asia/Tokyo"}', '{"timezone": "Europe/Berlin"}'
END, ASKS, CUT, REFUSED = (
    StopReason.END_TURN,
    StopReason.TOOL_USE,
    StopReason.MAX_TOKENS,
    StopReason.REFUSAL,
)


@attrs.frozen
class Whole:
    """A stream that is a whole answer.

    Attributes:
        seen: where; fault ids where it is one of a known kind.
        body: the bytes of the answer, as text.
        usage: None where the server tells none (N15).
    """

    seen: str
    body: str
    content: tuple[Block, ...]
    stop: StopReason = END
    usage: Usage | None = None


@attrs.frozen
class Failed:
    """A stream that is none.

    Attributes:
        error: name of the class.
        content, usage: what had arrived, as partial.
    """

    seen: str
    body: str
    error: str
    code: str
    retryable: bool = False
    content: tuple[Block, ...] = ()
    usage: Usage | None = None


def head(name: str | None = None, arguments: object = None, **fields: object) -> dict[str, object]:
    """Write one element of ``tool_calls``; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    return {"function": {k: v for k, v in function.items() if v is not None}, **fields}


def calls(*elements: Mapping[str, object]) -> dict[str, object]:
    """Write a chunk with these elements of ``tool_calls``."""
    return delta(tool_calls=list(elements))


def use(name: str, arguments: Mapping[str, object], call_id: str) -> ToolUseBlock:
    """Write a call as it should come out."""
    return ToolUseBlock(call_id, name, arguments)


def usage(sent: int, made: int, **more: object) -> dict[str, object]:
    """Write the usage of a chunk."""
    return {"usage": {"prompt_tokens": sent, "completion_tokens": made, **more}}


def kept(**raw: object) -> OpaqueBlock:
    """Write what is to be sent back."""
    return OpaqueBlock("openai", raw)


def event_error(value: Mapping[str, object]) -> str:
    """Write an event that is an error."""
    return f"event: error\ndata: {json.dumps(value)}\n\n"


def nested(depth: int) -> object:
    """Write lists in lists."""
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


TWO = (use("get_time", TOKYO, "a"), use("get_time", BERLIN, "b"))

ASK = calls(head("get_time", TOKYO_TEXT, index=0, id="a"))
ONE = (use("get_time", TOKYO, "a"),)


def labelled(label: str | None, *chunks: Mapping[str, object]) -> str:
    """Write an answer that ends with *label*."""
    return sse(*chunks, finish(label))
