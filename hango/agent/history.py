"""A session's conversation, as the loop reads it.

`dangling_call_results` answers calls that an earlier run left without a result; those messages are
stored.  `hango.agent.prompt` repairs everything else in the copy that is sent; nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import attrs

from hango.agent.prompt import Prompt, interrupted
from hango.domain import Block, Message, NewMessage, PromptMessage, ToolResultBlock, ToolUseBlock


@attrs.define(eq=False)
class SessionHistory:
    """What is known of a session's messages, kept from turn to turn and from run to run.

    Rule: each message is looked at once, so a turn of a long session costs what one of a short session
    does.  It is only memory: `follow` begins anew when the messages are not those it has seen.

    Attributes:
        _prompt: the conversation as it is sent to the provider it was last sent to.
        _own: the messages of the latest run that has any, oldest first.
        _seen: how many messages were looked at.
        _last_id: of the last of them.
    """

    _prompt: Prompt | None = attrs.field(default=None, init=False)
    _own: list[Message] = attrs.field(factory=list, init=False)
    _seen: int = attrs.field(default=0, init=False)
    _last_id: UUID | None = attrs.field(default=None, init=False)

    def follow(self, messages: Sequence[Message]) -> None:
        """Look at those *messages* that are new; all that the session has are given, oldest first."""
        if self._seen > len(messages) or (self._seen and messages[self._seen - 1].id != self._last_id):
            self._prompt, self._own, self._seen = None, [], 0
        for message in messages[self._seen :]:
            if message.run_id is not None:
                if self._own and self._own[0].run_id != message.run_id:
                    self._own = []
                self._own.append(message)
            if self._prompt is not None:
                self._prompt.add(message.role, message.content)
        if messages:
            self._seen, self._last_id = len(messages), messages[-1].id

    def of_run(self, run_id: UUID) -> Sequence[Message]:
        """Return the messages of the run that is being executed, oldest first.

        Runs of a session are executed one after another, so no other run has messages after them.
        """
        return self._own if self._own and self._own[0].run_id == run_id else ()

    def prompt(
        self, messages: Sequence[Message], provider: str, unstored: Sequence[Block] = ()
    ) -> tuple[PromptMessage, ...]:
        """Return what *provider* is sent for *messages*, all of the session, and *unstored* input."""
        self.follow(messages)
        if self._prompt is None or self._prompt.provider != provider:
            self._prompt = Prompt(provider)
            for message in messages:
                self._prompt.add(message.role, message.content)
        return self._prompt.messages(unstored)


def dangling_call_results(messages: Sequence[Message]) -> tuple[NewMessage, ...]:
    """Return error results for the calls at the end of the conversation that have none.

    To be called for a run that has no messages yet: its own open turn is replayed, never repaired.
    Only the tail is read: the last assistant messages, and the user messages after them.  One message
    for each assistant message with such calls, oldest first; empty if there are none.
    """
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
        if (results := tuple(map(interrupted, _open_calls(message, have_result))))
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
