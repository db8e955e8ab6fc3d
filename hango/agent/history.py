"""Conversation history: repaired so that every model API accepts it.

`dangling_call_results` answers calls that an earlier run left without a result; those messages are
stored.  `repair_history` repairs everything else in the copy that is sent; nothing of it is stored.
Rule: both are pure, and doing either twice changes nothing more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

import attrs

from hango.call_ids import CallIds
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
from hango.domain.names import api_name
from hango.domain.tools import NO_OUTPUT

INTERRUPTED = "tool call interrupted"
# Sent where an API requires a message and the conversation has none.
NOTHING = "(no message)"


def dangling_call_results(messages: Sequence[Message], run_id: UUID) -> tuple[NewMessage, ...]:
    """Return error results for the calls at the end of the conversation that have none.

    Only the tail is read: the last assistant messages before run *run_id*, and the user messages after
    them.  One message for each assistant message with such calls, oldest first; empty if there are
    none, or if *run_id* has messages already: its own open turn is replayed, never repaired.
    """
    if any(message.run_id == run_id for message in messages):
        return ()
    replies, requests = _tail(messages)
    have_result = {
        block.tool_use_id
        for message in replies
        for block in message.content
        if isinstance(block, ToolResultBlock)
    }
    stored = {(message.run_id, message.turn) for message in replies if message.run_id is not None}
    return tuple(
        NewMessage("user", results, message.run_id, message.turn, synthetic=True)
        for message in requests
        if (results := tuple(map(_interrupted, _open_calls(message, have_result))))
        and (message.run_id, message.turn) not in stored
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


def _open_calls(message: Message, have_result: set[str]) -> Iterator[ToolUseBlock]:
    for block in message.content:
        if isinstance(block, ToolUseBlock) and block.id not in have_result:
            yield block


def _interrupted(call: ToolUseBlock) -> ToolResultBlock:
    """Answer *call* with a neutral error: whether it took effect is not known."""
    return ToolResultBlock(call.id, INTERRUPTED, is_error=True)


# --- the copy that is sent ------------------------------------------------------------------


def repair_history(messages: Iterable[PromptMessage], provider: str) -> tuple[PromptMessage, ...]:
    """Return *messages* such as the strictest API accepts (rule 14 of the design).

    Roles alternate, and the first and last is the user.  Every call has one result, at the start of the
    next message, in request order.  Call ids are unique.  No block is empty, in the wrong role, or of
    another provider than *provider*.  Valid messages come back equal; so do signed thinking blocks.
    """
    sendable = (attrs.evolve(m, content=_sendable(m, provider)) for m in messages)
    paired = _paired(_alternating(sendable))
    return tuple(_framed(_alternating(paired)))


def _sendable(message: PromptMessage, provider: str) -> tuple[Block, ...]:
    """Return the blocks of *message* that may be sent in its role, without `for_user` texts."""
    found = (_sendable_block(block, message.role, provider) for block in message.content)
    blocks = [block for block in found if block is not None]
    # An answer that was cut short may end in reasoning, which no API accepts.
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
    """Drop empty messages, then join adjacent ones of the same role."""
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
    """Give every call exactly one result, in the message after it; drop results without a call."""
    ids = CallIds()
    for index, message in enumerate(messages):
        if message.role == "assistant":
            after = messages[index + 1].content if index + 1 < len(messages) else ()
            content, results = _with_results(message.content, after, ids)
            yield PromptMessage("assistant", content)
            yield PromptMessage("user", results + _without_results(after))
        elif index == 0:
            yield PromptMessage("user", _without_results(message.content))


def _with_results(
    content: Iterable[Block], after: Iterable[Block], ids: CallIds
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Return *content* with unique call ids, and one result for each call, in request order.

    Of calls that share an id, the first gets the first result.  A new id depends only on the messages
    before it, so a growing conversation keeps its prefix, which providers cache.
    """
    given: defaultdict[str, deque[ToolResultBlock]] = defaultdict(deque)
    for block in after:
        if isinstance(block, ToolResultBlock):
            given[block.tool_use_id].append(block)
    blocks: list[Block] = []
    results: list[Block] = []
    for block in content:
        if not isinstance(block, ToolUseBlock):
            blocks.append(block)
            continue
        result = given[block.id].popleft() if given[block.id] else _interrupted(block)
        call_id = ids.give(block.id)
        blocks.append(attrs.evolve(block, id=call_id))
        results.append(attrs.evolve(result, tool_use_id=call_id))
    return tuple(blocks), tuple(results)


def _without_results(content: Iterable[Block]) -> tuple[Block, ...]:
    return tuple(block for block in content if not isinstance(block, ToolResultBlock))


def _framed(messages: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    """Begin and end with the user, as every API requires."""
    placeholder = PromptMessage("user", (TextBlock(NOTHING),))
    if not messages or messages[0].role == "assistant":
        yield placeholder
    yield from messages
    if messages and messages[-1].role == "assistant":
        yield placeholder
