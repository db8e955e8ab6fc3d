"""What a model has said so far, for spans with content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from hango.domain import (
    BlockStart,
    InputDelta,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolUseBlock,
)

_MAX = 64 * 1024  # characters; more is not recorded


@attrs.define
class AnswerParts:
    """Collects the parts of an answer, by their index."""

    _texts: dict[tuple[int, str], list[str]] = attrs.field(factory=dict, init=False)
    _calls: dict[int, tuple[str, str]] = attrs.field(factory=dict, init=False)  # id and name
    _size: int = attrs.field(default=0, init=False)

    def add(self, event: ProviderEvent) -> None:
        """Take what *event* adds."""
        match event:
            case BlockStart(index, ToolUseBlock() as call):
                self._calls[index] = (call.id, call.name)
            case TextDelta(index, text):
                self._append(index, "text", text)
            case ThinkingDelta(index, text):
                self._append(index, "reasoning", text)
            case InputDelta(index, text):
                self._append(index, "tool_call", text)

    def _append(self, index: int, kind: str, text: str) -> None:
        if self._size < _MAX:
            self._size += len(text)
            self._texts.setdefault((index, kind), []).append(text)

    def parts(self) -> Sequence[Mapping[str, str]]:
        """Return the parts, in order."""
        found: list[Mapping[str, str]] = []
        for (index, kind), texts in sorted(self._texts.items()):
            if kind == "tool_call":
                call_id, name = self._calls.get(index, ("", ""))
                arguments = "".join(texts)
                found.append({"type": kind, "id": call_id, "name": name, "arguments": arguments})
            else:
                found.append({"type": kind, "content": "".join(texts)})
        return found
