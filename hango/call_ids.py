"""Ids of tool calls: unique in a conversation, and such as every model API takes back.

Servers send none, one id for all calls of an answer, or the same ids in every answer.  The same history
and answer give the same ids, so a turn that is tried again looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from hango.domain import ProviderRequest, ToolUseBlock
from hango.domain.names import MAX_API_NAME, api_characters, is_api_name

_MAX_BASE = MAX_API_NAME - 6  # characters; the rest is for the number of a copy


class CallIds:
    """Gives out ids; takes time linear in the ids given and taken, whatever they are."""

    def __init__(self, taken: Iterable[str] = (), *, turn: int = 0) -> None:
        self._turn = turn
        self._given = 0
        self._copies: dict[str, int] = {}  # of each id, the number of its latest copy
        self._taken = set(taken)

    @classmethod
    def after(cls, request: ProviderRequest) -> CallIds:
        """Make the ids of the answer to *request*: none that its history has."""
        blocks = (block for message in request.messages for block in message.content)
        taken = (block.id for block in blocks if isinstance(block, ToolUseBlock))
        return cls(taken, turn=request.turn)

    def give(self, wanted: str = "") -> str:
        """Return *wanted* if it is valid and free; else an id made of it, or of the turn."""
        if is_api_name(wanted) and wanted not in self._taken:
            self._given += 1
            self._taken.add(wanted)
            return wanted
        base = api_characters(wanted.strip())[:_MAX_BASE]
        base = base or f"call_{self._turn}_{self._given}"
        self._given += 1
        new = base
        while new in self._taken:
            self._copies[base] = self._copies.get(base, 1) + 1
            new = f"{base}_{self._copies[base]}"
        self._taken.add(new)
        return new
