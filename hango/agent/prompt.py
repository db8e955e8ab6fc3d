"""Builds the request of one provider call.

Rule: the system prompt is the agent's own text, hango authors none; and what is sent is a mended copy
of what is stored.  Used by the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hango.agent.history import repair_history
from hango.codec import clean_text
from hango.domain import (
    Message,
    NewMessage,
    PromptMessage,
    ProviderRequest,
    ToolDefinition,
)


def build_request(
    messages: Iterable[Message | NewMessage],
    *,
    provider: str,
    model: str,
    system_prompt: str,
    tools: Sequence[ToolDefinition],
    turn: int,
    max_tokens: int | None,
) -> ProviderRequest:
    """Return the request that asks *provider* for the answer of *turn*.

    *messages* is the conversation as it is stored, oldest first, and what is about to be stored.
    """
    history = (PromptMessage(message.role, message.content) for message in messages)
    return ProviderRequest(
        model=model,
        system=clean_text(system_prompt),
        messages=repair_history(history, provider),
        tools=tuple(tools),
        turn=turn,
        max_tokens=max_tokens,
    )
