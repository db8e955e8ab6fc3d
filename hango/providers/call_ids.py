"""Ids of tool calls: one for each call of a conversation, whatever the server sends.

One rule: an id that leaves here is one that every API takes back (letters, digits, "_" and "-", at
most 64) and that no other call of the conversation has; and the same request and answer give the same
ids, so that a turn driven again looks the same.  Some servers send no id, some one for all calls of an
answer, some the same one in every answer.
"""

from __future__ import annotations

import re

from hango.domain import ProviderRequest, ToolUseBlock

MAX_LENGTH = 64  # characters, the number of a copy included
_UNSENDABLE = re.compile(r"[^a-zA-Z0-9_-]")


class CallIds:
    """Gives out the ids of one answer."""

    def __init__(self, request: ProviderRequest) -> None:
        self._turn = request.turn
        self._given = 0
        self._copies: dict[str, int] = {}  # of each id, the number of its latest copy
        self._taken = {
            block.id
            for message in request.messages
            for block in message.content
            if isinstance(block, ToolUseBlock)
        }

    def give(self, wanted: str = "") -> str:
        """Return *wanted* if it is free, else one made of it, or of the turn if it is empty."""
        base = _UNSENDABLE.sub("_", wanted.strip())[: MAX_LENGTH - 6]
        base = base or f"call_{self._turn}_{self._given}"
        self._given += 1
        new = base
        while new in self._taken:
            self._copies[base] = self._copies.get(base, 1) + 1
            new = f"{base}_{self._copies[base]}"
        self._taken.add(new)
        return new
