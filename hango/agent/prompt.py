"""The conversation as it is sent to a model: a copy, repaired so that every model API accepts it.

Nothing of the repair is stored.
Rule: pure, and incremental: adding a message costs the same however long the conversation is, and
changes nothing of what was sent before the last answer, which providers cache.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import attrs

from hango.call_ids import CallIds
from hango.domain import (
    Block,
    MessageRole,
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
_PLACEHOLDER = PromptMessage("user", (TextBlock(NOTHING),))


def repair_history(messages: Iterable[PromptMessage], provider: str) -> tuple[PromptMessage, ...]:
    """Return *messages* as `Prompt` sends them.  Doing it twice changes nothing more."""
    prompt = Prompt(provider)
    for message in messages:
        prompt.add(message.role, message.content)
    return prompt.messages()


@attrs.define(eq=False)
class Prompt:
    """A conversation such as the strictest API accepts it (rule 14 of the design).

    Roles alternate, and the first and last is the user.  Every call has one result, at the start of the
    next message, in request order.  Call ids are unique.  No block is empty, in the wrong role, or of
    another provider.  Valid messages come back equal; so do signed thinking blocks.

    Attributes:
        provider: the name of the one that it is sent to.
        _closed: messages that no later one can change.
        _answer: blocks of the last answer, after `_closed`; empty before the first.
        _calls: the calls in it, each with the id that it is sent with.
        _replies: blocks of the user since then.
        _open: what answer and replies are sent as; None when they have changed since.
    """

    provider: str
    _closed: list[PromptMessage] = attrs.field(factory=list, init=False)
    _ids: CallIds = attrs.field(factory=CallIds, init=False)
    _answer: list[Block] = attrs.field(factory=list, init=False)
    _calls: list[tuple[ToolUseBlock, str]] = attrs.field(factory=list, init=False)
    _replies: list[Block] = attrs.field(factory=list, init=False)
    _open: list[PromptMessage] | None = attrs.field(default=None, init=False)

    def add(self, role: MessageRole, content: Sequence[Block]) -> None:
        """Add the next message of the conversation."""
        blocks = _sendable(role, content, self.provider)
        if not blocks:
            return
        if role == "user":
            self._replies += blocks
        else:
            if self._replies:
                self._close()
            self._answer += map(self._with_unique_id, blocks)
        self._open = None

    def messages(self, unstored: Sequence[Block] = ()) -> tuple[PromptMessage, ...]:
        """Return the messages to send, oldest first.

        *unstored* is a message of the user that follows, but is not part of the conversation yet.
        """
        if self._open is None:
            self._open = self._paired(self._replies)
        last = self._open
        if unstored:
            last = self._paired([*self._replies, *_sendable("user", unstored, self.provider)])
        sent = [*self._closed]
        _join(sent, last)
        if not sent or sent[0].role == "assistant":
            sent.insert(0, _PLACEHOLDER)
        if sent[-1].role == "assistant":
            sent.append(_PLACEHOLDER)
        return tuple(sent)

    def _close(self) -> None:
        """Begin another answer: what was open cannot change any more."""
        _join(self._closed, self._paired(self._replies) if self._open is None else self._open)
        self._answer, self._calls, self._replies, self._open = [], [], [], None

    def _with_unique_id(self, block: Block) -> Block:
        """Give a call an id that no call before has.

        It depends only on the messages before it, so a growing conversation keeps its prefix.
        """
        if not isinstance(block, ToolUseBlock):
            return block
        call_id = self._ids.give(block.id)
        self._calls.append((block, call_id))
        return block if call_id == block.id else attrs.evolve(block, id=call_id)

    def _paired(self, replies: Sequence[Block]) -> list[PromptMessage]:
        """Return the last answer, and the user's message after it with one result for each call.

        Results without a call are dropped.  Of calls that share an id, the first gets the first result.
        """
        given: defaultdict[str, deque[ToolResultBlock]] = defaultdict(deque)
        others: list[Block] = []
        for block in replies:
            if isinstance(block, ToolResultBlock):
                given[block.tool_use_id].append(block)
            else:
                others.append(block)
        results: list[Block] = []
        for call, call_id in self._calls:
            result = given[call.id].popleft() if given[call.id] else interrupted(call)
            results.append(_answering(result, call_id))
        pair = (
            PromptMessage("assistant", tuple(self._answer)),
            PromptMessage("user", (*results, *others)),
        )
        return [message for message in pair if message.content]


def interrupted(call: ToolUseBlock) -> ToolResultBlock:
    """Answer *call* with a neutral error: whether it took effect is not known."""
    return ToolResultBlock(call.id, INTERRUPTED, is_error=True)


def _answering(result: ToolResultBlock, call_id: str) -> ToolResultBlock:
    return result if result.tool_use_id == call_id else attrs.evolve(result, tool_use_id=call_id)


def _join(messages: list[PromptMessage], more: Iterable[PromptMessage]) -> None:
    """Append *more*; a message in the role of the last one is joined to it."""
    for message in more:
        if messages and messages[-1].role == message.role:
            messages[-1] = PromptMessage(message.role, messages[-1].content + message.content)
        else:
            messages.append(message)


# --- single blocks --------------------------------------------------------------------------


def _sendable(role: MessageRole, content: Sequence[Block], provider: str) -> list[Block]:
    """Return the blocks of a message that may be sent in its role, without `for_user` texts."""
    found = (_sendable_block(block, role, provider) for block in content)
    blocks = [block for block in found if block is not None]
    # An answer that was cut short may end in reasoning, which no API accepts.
    while blocks and isinstance(blocks[-1], ThinkingBlock | RedactedThinkingBlock):
        blocks.pop()
    return blocks


def _sendable_block(block: Block, role: MessageRole, provider: str) -> Block | None:
    assistant = role == "assistant"
    match block:
        case TextBlock(text):
            return block if text.strip() else None
        case ThinkingBlock(signature=signature, provider=owner):
            return block if assistant and signature and owner in (None, provider) else None
        case RedactedThinkingBlock(provider=owner):
            return block if assistant and owner in (None, provider) else None
        case ToolUseBlock():
            return _sendable_call(block) if assistant else None
        case ToolResultBlock():
            return None if assistant else _sendable_result(block)
        case OpaqueBlock(provider=owner):
            return block if assistant and owner == provider else None


def _sendable_call(call: ToolUseBlock) -> ToolUseBlock:
    """Return *call* without raw arguments and with a name that every API takes."""
    name = api_name(call.name)
    if call.raw_input is None and name == call.name:
        return call
    return ToolUseBlock(call.id, name, call.input)


def _sendable_result(result: ToolResultBlock) -> ToolResultBlock:
    """Return *result* without the text for people; one without text says that it has none."""
    if result.for_user is None and result.content.strip():
        return result
    return ToolResultBlock(
        result.tool_use_id, result.content if result.content.strip() else NO_OUTPUT, result.is_error
    )
