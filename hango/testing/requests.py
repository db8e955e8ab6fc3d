"""What the strictest model API asks of a request, as a check.

One rule: pure, and written from what the APIs refuse, not from what hango sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hango.codec import clean_text
from hango.domain import (
    Block,
    OpaqueBlock,
    PromptMessage,
    ProviderRequest,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_request(request: ProviderRequest) -> None:
    """Refuse *request* if the strictest API would.

    Raises:
        AssertionError: it names everything that is wrong, a line each.
    """
    problems = [*_tools(request), *_roles(request.messages), *_ids(request.messages)]
    for place, message in enumerate(request.messages):
        problems += [f"message {place}: {problem}" for problem in _content(message)]
    problems += _pairs(request.messages)
    if problems:
        raise AssertionError("the request would be refused:\n" + "\n".join(problems))


def _tools(request: ProviderRequest) -> Iterator[str]:
    names = [tool.name for tool in request.tools]
    if len(set(names)) != len(names):
        yield f"tools of the same name: {names}"
    for tool in request.tools:
        if not _NAME.fullmatch(tool.name):
            yield f"no name of a tool: {tool.name!r}"
        if tool.parameters.get("type") != "object":
            yield f"the arguments of {tool.name} are not an object: {tool.parameters}"


def _roles(messages: Sequence[PromptMessage]) -> Iterator[str]:
    roles = [message.role for message in messages]
    if not roles or roles[0] != "user" or roles[-1] != "user":
        yield f"not from user to user: {roles}"
    if any(one == next_one for one, next_one in pairwise(roles)):
        yield f"roles do not alternate: {roles}"


def _ids(messages: Sequence[PromptMessage]) -> Iterator[str]:
    ids = [call.id for message in messages for call in _calls(message)]
    if len(set(ids)) != len(ids):
        yield f"calls of the same id: {ids}"
    for call_id in ids:
        if not _NAME.fullmatch(call_id):
            yield f"no id of a call: {call_id!r}"


def _content(message: PromptMessage) -> Iterator[str]:
    if not message.content:
        yield "holds nothing"
    for block in message.content:
        yield from (
            f"{problem}: {block}" for problem in (*_misplaced(block, message.role), *_said(block))
        )


def _misplaced(block: Block, role: str) -> Iterator[str]:
    model = ToolUseBlock | ThinkingBlock | RedactedThinkingBlock | OpaqueBlock
    if isinstance(block, ToolResultBlock) and role != "user":
        yield "a result that is not the user's"
    if isinstance(block, model) and role != "assistant":
        yield "what only a model makes"


def _said(block: Block) -> Iterator[str]:
    match block:
        case TextBlock(said) | ToolResultBlock(content=said) if said != clean_text(said):
            yield "characters no API takes"
        case TextBlock(said) if not said.strip():
            yield "text without text"
        case ToolResultBlock(content=said, is_error=True) if not said.strip():
            yield "an error that says nothing"
        case ToolUseBlock(name=name) if not _NAME.fullmatch(name):
            yield "a call of a name no API takes back"


def _pairs(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """Each call has one result, in the very next message, first in it and in the order of the calls."""
    asked: list[str] = []
    for place, message in enumerate(messages):
        results = [b.tool_use_id for b in message.content if isinstance(b, ToolResultBlock)]
        if results != asked:
            yield f"message {place}: {asked} are asked for, {results} answered"
        if not all(isinstance(block, ToolResultBlock) for block in message.content[: len(results)]):
            yield f"message {place}: results after other content"
        asked = [call.id for call in _calls(message)]


def _calls(message: PromptMessage) -> list[ToolUseBlock]:
    return [block for block in message.content if isinstance(block, ToolUseBlock)]
