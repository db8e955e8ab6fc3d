"""Builds the body of a Messages request.  Pure.

Rule: role, text and calls of a message are hango's; what a provider sent for itself goes back as it
came, only to that provider, and only inside the assistant's own messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hango.codec import dump_json
from hango.domain import (
    Block,
    JsonObject,
    OpaqueBlock,
    PromptMessage,
    ProviderRequest,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolDefinition,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.domain.names import api_name
from hango.domain.tools import NO_OUTPUT
from hango.providers.anthropic.blocks import CALL_FIELDS, OF_CALL, OF_TEXT, WHOLE
from hango.providers.anthropic.caching import MARKER, mark_messages
from hango.providers.fields import as_text, object_at

# Tokens of an answer where the agent has no bound; the API wants one.  What models allow at most:
# https://docs.anthropic.com/en/docs/about-claude/models
_MAX_TOKENS = (
    (re.compile(r"claude-3-(opus|sonnet|haiku)"), 4096),
    (re.compile(r"claude-3-5|^(?!.*claude)"), 8192),
)
_MAX_TOKENS_NOW = 32_000
# Types of blocks that only hango writes; nothing that was kept becomes one of these
_OURS = frozenset({"", "text", "tool_use", "tool_result", "thinking", "redacted_thinking"})


def build_request(request: ProviderRequest, *, provider: str, cache: bool) -> bytes:
    """Return the body to post.

    Args:
        request: valid for the strictest API.
        provider: whose opaque blocks and reasoning go back.
        cache: whether to mark what the server should keep.

    Raises:
        InvalidInput: something in it is not JSON.
    """
    messages = _messages(request, provider)
    tools = [_tool(tool) for tool in request.tools]
    system: list[dict[str, object]] = []
    if request.system.strip():
        system.append({"type": "text", "text": request.system})
    if cache:
        for last in (*tools[-1:], *system):
            last["cache_control"] = MARKER
        mark_messages([content for _, content in messages])
    body: dict[str, object] = {
        "model": request.model,
        "max_tokens": request.max_tokens or default_max_tokens(request.model),
        "stream": True,
        "messages": [{"role": role, "content": content} for role, content in messages],
    }
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
    return dump_json(body, bounded=False).encode()


def default_max_tokens(model: str) -> int:
    """Return the bound on an answer of *model* where the agent has none."""
    found = (most for pattern, most in _MAX_TOKENS if pattern.search(model))
    return next(found, _MAX_TOKENS_NOW)


def _tool(tool: ToolDefinition) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _messages(request: ProviderRequest, provider: str) -> list[tuple[str, list[dict[str, object]]]]:
    """Return role and content of each message; none is empty, and roles alternate."""
    ids, pairs = _wire_ids(request.messages, provider), _server_pairs(request.messages, provider)
    messages: list[tuple[str, list[dict[str, object]]]] = []
    for message in request.messages:
        content = list(_content(message.content, provider, ids, pairs))
        while content and content[-1]["type"] in ("thinking", "redacted_thinking"):
            content.pop()  # the API refuses an answer that ends so: it was cut short
        if content and messages and messages[-1][0] == message.role:
            messages[-1][1].extend(content)
        elif content:
            messages.append((message.role, content))
    return messages


def _content(
    blocks: Sequence[Block], provider: str, ids: Mapping[str, str], pairs: frozenset[str]
) -> Iterator[dict[str, object]]:
    for index, block in enumerate(blocks):
        after = blocks[index + 1] if index + 1 < len(blocks) else None
        kept = _raw(after, provider)
        match block:
            case TextBlock(text):
                yield {"type": "text", "text": text, **_only(kept, OF_TEXT, ("citations",))}
            case ToolUseBlock(call_id, name, arguments):
                extra = _only(kept, OF_CALL, CALL_FIELDS)
                sent = {"id": ids.get(call_id, call_id), "name": api_name(name), "input": arguments}
                yield {"type": "tool_use", **sent, **extra}
            case ToolResultBlock(call_id, content, is_error):
                yield _result(ids.get(call_id, call_id), content, is_error=is_error)
            case ThinkingBlock(text, signature, owner) if signature and owner in (None, provider):
                yield {"type": "thinking", "thinking": text, "signature": signature}
            case RedactedThinkingBlock(data, owner) if owner in (None, provider):
                yield {"type": "redacted_thinking", "data": data}
            case OpaqueBlock():
                yield from _whole(_raw(block, provider), pairs)


def _result(call_id: str, content: str, *, is_error: bool) -> dict[str, object]:
    said = content if content.strip() else NO_OUTPUT
    result: dict[str, object] = {"type": "tool_result", "tool_use_id": call_id, "content": said}
    return {**result, "is_error": True} if is_error else result


def _whole(raw: JsonObject, pairs: frozenset[str]) -> Iterator[dict[str, object]]:
    """Yield a block that was kept as it came, unless it is half of a call that the server ran."""
    block = object_at(raw, WHOLE)
    lonely = any(link and link not in pairs for link in _links(block))
    if as_text(block.get("type")) not in _OURS and not lonely:
        yield {key: value for key, value in block.items() if key != "cache_control"}


def _server_pairs(messages: Sequence[PromptMessage], provider: str) -> frozenset[str]:
    """Return the ids of the calls that the server ran itself and that have their result here."""
    raws = [object_at(_raw(b, provider), WHOLE) for m in messages for b in m.content]
    links = [_links(raw) for raw in raws if raw]
    return frozenset({call for call, _ in links} & {result for _, result in links} - {""})


def _links(block: JsonObject) -> tuple[str, str]:
    """Return the id of a call that the server runs, and the id that its result refers to."""
    call = as_text(block.get("id")) if as_text(block.get("type")).endswith("_tool_use") else ""
    return call, as_text(block.get("tool_use_id"))


def _wire_ids(messages: Sequence[PromptMessage], provider: str) -> Mapping[str, str]:
    """Return the ids that *provider* gave to calls and hango could not use, by the ids hango gave."""
    found: dict[str, str] = {}
    for message in messages:
        used: set[str] = set()
        for block, after in zip(message.content, message.content[1:], strict=False):
            wire = as_text(object_at(_raw(after, provider), OF_CALL).get("id"))
            if isinstance(block, ToolUseBlock) and wire and wire not in used:
                found[block.id] = wire
                used.add(wire)
    return found


def _raw(block: Block | None, provider: str) -> JsonObject:
    """Return what *block* keeps for *provider*, may be empty."""
    mine = isinstance(block, OpaqueBlock) and block.provider == provider
    return block.raw if isinstance(block, OpaqueBlock) and mine else {}


def _only(raw: JsonObject, key: str, names: Sequence[str]) -> dict[str, object]:
    """Return the fields of an object that are *names*: what was kept cannot set anything else."""
    return {name: value for name, value in object_at(raw, key).items() if name in names}
