"""Makes a conversation one that every model API accepts.

Two halves.  `unanswered` finds calls that an earlier run left without a result, to be answered by
stored messages.  `repair_history` repairs everything else in the copy that is sent; it stores nothing.
Rule: both are pure, and doing either twice changes nothing more.  Used by the loop and its prompt.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import attrs

from hango.domain import (
    Block,
    Message,
    MessageRole,
    NewMessage,
    OpaqueBlock,
    PromptMessage,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.domain.names import api_name, is_api_name
from hango.domain.tools import NO_OUTPUT

INTERRUPTED = "tool call interrupted"
# Stands where an API insists on a message and the conversation has none.
NOTHING = "(no message)"


def unanswered(messages: Sequence[Message], run_id: UUID) -> tuple[NewMessage, ...]:
    """Return the error results that answer the dangling calls at the end of the conversation.

    Only the tail is looked at: the last assistant messages before run *run_id*, and what users said
    since.  One message for each that has calls without results, oldest first; empty when there are
    none, or when *run_id* has messages already: what is its own is re-driven, never repaired.
    """
    if any(message.run_id == run_id for message in messages):
        return ()
    replies, asking = _tail(messages)
    answered = {
        block.tool_use_id
        for message in replies
        for block in message.content
        if isinstance(block, ToolResultBlock)
    }
    keys = {(message.run_id, message.turn) for message in replies if message.run_id is not None}
    return tuple(
        NewMessage("user", results, message.run_id, message.turn, synthetic=True)
        for message in asking
        if (results := tuple(map(_interrupted, _open_calls(message, answered))))
        and (message.run_id, message.turn) not in keys
    )


def _tail(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the user messages at the end and the assistant messages before them, oldest first."""
    split = len(messages)
    while split and messages[split - 1].role == "user":
        split -= 1
    start = split
    while start and messages[start - 1].role == "assistant":
        start -= 1
    return list(messages[split:]), list(messages[start:split])


def _open_calls(message: Message, answered: set[str]) -> Iterator[ToolUseBlock]:
    for block in message.content:
        if isinstance(block, ToolUseBlock) and block.id not in answered:
            yield block


def _interrupted(call: ToolUseBlock) -> ToolResultBlock:
    """Answer *call* with a neutral error: nobody knows how far it came."""
    return ToolResultBlock(call.id, INTERRUPTED, is_error=True)


# --- the copy that is sent ------------------------------------------------------------------


def repair_history(messages: Iterable[PromptMessage], provider: str) -> tuple[PromptMessage, ...]:
    """Return *messages* as the strictest API takes them (rule 14 of the design).

    Roles alternate, from user to user; every call has one result, first in the next message and in
    request order; ids are unique; no block is empty, foreign to *provider*, or misplaced.  Messages
    that are valid come back equal, and so do signed thinking blocks.
    """
    sendable = (attrs.evolve(m, content=_sendable(m, provider)) for m in messages)
    paired = _paired(_alternating(sendable))
    return tuple(_framed(_alternating(paired)))


def _sendable(message: PromptMessage, provider: str) -> tuple[Block, ...]:
    """Return the blocks of *message* that may be sent in its role, without what is for people."""
    found = (_sendable_block(block, message.role, provider) for block in message.content)
    blocks = [block for block in found if block is not None]
    # No API takes reasoning that nothing follows, as an answer cut short leaves it.
    while blocks and isinstance(blocks[-1], ThinkingBlock | RedactedThinkingBlock):
        blocks.pop()
    return tuple(blocks)


def _sendable_block(block: Block, role: MessageRole, provider: str) -> Block | None:
    assistant = role == "assistant"
    match block:
        case TextBlock(text):
            return block if text.strip() else None
        case ThinkingBlock(signature=signature):
            return block if assistant and signature else None
        case RedactedThinkingBlock():
            return block if assistant else None
        case ToolUseBlock():
            return _sendable_call(block) if assistant else None
        case ToolResultBlock(call_id, content, is_error):
            text = content if content.strip() else NO_OUTPUT
            return None if assistant else ToolResultBlock(call_id, text, is_error)
        case OpaqueBlock(provider=owner):
            return block if assistant and owner == provider else None


def _sendable_call(call: ToolUseBlock) -> ToolUseBlock:
    """Return *call* without raw arguments and with a name that every API takes."""
    return ToolUseBlock(call.id, api_name(call.name), call.input)


def _alternating(messages: Iterable[PromptMessage]) -> list[PromptMessage]:
    """Drop messages that are empty, then join neighbours of one role."""
    joined: list[PromptMessage] = []
    for message in messages:
        if not message.content:
            continue
        if joined and joined[-1].role == message.role:
            joined[-1] = attrs.evolve(joined[-1], content=joined[-1].content + message.content)
        else:
            joined.append(message)
    return joined


def _paired(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    """Give every call exactly one result, in the message after it; results without a call go."""
    used: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "assistant":
            after = messages[index + 1].content if index + 1 < len(messages) else ()
            content, results = _settled(message.content, after, used)
            yield PromptMessage("assistant", content)
            yield PromptMessage("user", results + _but_results(after))
        elif index == 0:
            yield PromptMessage("user", _but_results(message.content))


def _settled(
    content: Iterable[Block], after: Iterable[Block], used: set[str]
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Return *content* with unique call ids, and one result for each call, in request order.

    Of calls that share an id, the first takes the first result.
    """
    given: defaultdict[str, deque[ToolResultBlock]] = defaultdict(deque)
    for block in after:
        if isinstance(block, ToolResultBlock):
            given[block.tool_use_id].append(block)
    asked: list[Block] = []
    results: list[Block] = []
    for block in content:
        if not isinstance(block, ToolUseBlock):
            asked.append(block)
            continue
        result = given[block.id].popleft() if given[block.id] else _interrupted(block)
        call_id = _unique(block.id, used)
        asked.append(attrs.evolve(block, id=call_id))
        results.append(attrs.evolve(result, tool_use_id=call_id))
    return tuple(asked), tuple(results)


def _unique(call_id: str, used: set[str]) -> str:
    """Return *call_id*, or a new one if it is used or not sendable.

    The new one depends on what came before it only, so that a growing conversation keeps its prefix
    (which providers cache).
    """
    if call_id in used or not is_api_name(call_id):
        number = len(used)
        while (call_id := f"call_{number}") in used:
            number += 1
    used.add(call_id)
    return call_id


def _but_results(content: Iterable[Block]) -> tuple[Block, ...]:
    return tuple(block for block in content if not isinstance(block, ToolResultBlock))


def _framed(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    """Begin and end with the user, as every API wants it."""
    stand_in = PromptMessage("user", (TextBlock(NOTHING),))
    if not messages or messages[0].role == "assistant":
        yield stand_in
    yield from messages
    if messages and messages[-1].role == "assistant":
        yield stand_in
