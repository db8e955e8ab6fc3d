"""Builds the body of a Chat Completions request.  Pure.

Rule: role, content and calls of a message are hango's; of what a provider sent for itself, only known
fields go back, and only to that provider.  The fewest fields are used, since most servers know few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from hango.codec import dump_json
from hango.domain import (
    JsonObject,
    OpaqueBlock,
    PromptMessage,
    ProviderRequest,
    ToolDefinition,
    ToolResultBlock,
    ToolUseBlock,
    joined_text,
)
from hango.domain.names import api_name, is_api_name
from hango.domain.tools import NO_OUTPUT
from hango.providers.openai.calls import RETURNED
from hango.providers.openai.options import option_fields
from hango.providers.openai.reasoning import REASONING_FIELDS

# The API has no field for a failed call, so its text begins with this
ERROR_PREFIX = "Error: "


def build_request(request: ProviderRequest, *, provider: str, max_tokens_field: str) -> bytes:
    """Return the body to post.

    Args:
        request: valid for the strictest API.
        provider: whose opaque blocks go back.
        max_tokens_field: the name of this server for the bound on the answer.

    Raises:
        InvalidInput: something in it is not JSON.
    """
    body: dict[str, object] = {
        **option_fields(request),  # first: `extra` replaces nothing of hango's
        "model": request.model,
        "messages": _messages(request, provider),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.max_tokens is not None:
        body[max_tokens_field] = request.max_tokens
    return dump_json(body, bounded=False).encode()


def _tool(tool: ToolDefinition) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _messages(request: ProviderRequest, provider: str) -> list[JsonObject]:
    ids = _wire_ids(request.messages, provider)
    messages: list[dict[str, object]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        by_us = message.role == "assistant"
        found = _assistant(message, provider, ids) if by_us else _user(message, ids)
        for new in found:
            _append(messages, new)
    return list(messages)


def _append(messages: list[dict[str, object]], new: dict[str, object]) -> None:
    """Add *new*; two user texts in a row become one, since chat templates want roles to alternate.

    They follow each other when an assistant's message between them had nothing for this provider.
    """
    last = messages[-1] if messages else {}
    if new["role"] == last.get("role") == "user":
        last["content"] = f"{last['content']}\n\n{new['content']}"
    else:
        messages.append(new)


def _user(message: PromptMessage, ids: Mapping[str, str]) -> Iterator[dict[str, object]]:
    """Yield a user's message: first the results, a message each, since they must follow their calls."""
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            yield {
                "role": "tool",
                "tool_call_id": _id(block.tool_use_id, ids),
                "content": _result(block),
            }
    if text := _text(message):
        yield {"role": "user", "content": text}


def _result(block: ToolResultBlock) -> str:
    said = block.content if block.content.strip() else NO_OUTPUT
    return ERROR_PREFIX + said if block.is_error else said


def _assistant(
    message: PromptMessage, provider: str, ids: Mapping[str, str]
) -> Iterator[dict[str, object]]:
    """Yield the model's own message; none if nothing in it is for this provider."""
    kept = _kept(message, provider)
    extras = _object(kept, "calls")
    calls = [
        _call(block, _id(block.id, ids), _only(extras, block.id, RETURNED))
        for block in message.content
        if isinstance(block, ToolUseBlock)
    ]
    text = _text(message)
    if not text and not calls:
        return
    fields = _only(kept, "message", REASONING_FIELDS)
    found: dict[str, object] = {**fields, "role": "assistant", "content": text or None}
    if calls:
        found["tool_calls"] = calls
    yield found


def _call(block: ToolUseBlock, call_id: str, extra: JsonObject) -> JsonObject:
    """Return a call; arguments that were not a JSON object are sent as an empty one."""
    function = {"name": api_name(block.name), "arguments": dump_json(block.input)}
    return {**extra, "id": call_id, "type": "function", "function": function}


def _wire_ids(messages: Sequence[PromptMessage], provider: str) -> Mapping[str, str]:
    """Return the ids that *provider* gave to calls and hango could not use, by the ids hango gave.

    Each is the id of one call of its message.
    """
    found: dict[str, str] = {}
    for message in messages:
        used: set[str] = set()
        for call_id, extra in _object(_kept(message, provider), "calls").items():
            wire = _object({"": extra}, "").get("id")
            if isinstance(wire, str) and not is_api_name(wire) and wire not in used:
                found[call_id] = wire
                used.add(wire)
    return found


def _id(call_id: str, ids: Mapping[str, str]) -> str:
    return ids.get(call_id, call_id)


def _kept(message: PromptMessage, provider: str) -> JsonObject:
    """Return what `answer` kept for this message, may be empty.

    A message may be several in one: each call keeps its own fields, the last reasoning counts.
    """
    mine = [b.raw for b in message.content if isinstance(b, OpaqueBlock) and b.provider == provider]
    calls = {key: value for raw in mine for key, value in _object(raw, "calls").items()}
    return {**mine[-1], "calls": calls} if mine else {}


def _object(parent: JsonObject, key: str) -> JsonObject:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}


def _only(parent: JsonObject, key: str, names: Collection[str]) -> dict[str, object]:
    """Return the fields of an object that are *names*: what was kept cannot set anything else."""
    return {name: value for name, value in _object(parent, key).items() if name in names}


def _text(message: PromptMessage) -> str:
    """Return the texts of *message* as paragraphs; few servers understand a list of parts."""
    return joined_text(message.content, "\n\n")
