"""Reasoning in a chat completion: three dialects, and what each wants back.  Pure; for `answer` only.

Rule: the fields to send back are kept as they came, apart from the text that people read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import attrs

from hango.domain import JsonObject
from hango.text import GrowingText

# Thinking models of DeepSeek and Moonshot send this field, also empty, and refuse a conversation that
# lacks it (https://api-docs.deepseek.com/guides/thinking_mode).
ECHOED = "reasoning_content"
# Ollama, Groq, Cerebras, vLLM.  Groq refuses the other name, so reasoning goes back by the name it had.
PLAIN = "reasoning"
TEXT_FIELDS = (ECHOED, PLAIN)
REASONING_FIELDS = frozenset({*TEXT_FIELDS, "reasoning_details", "extra_content"})
"""All that goes back in an assistant's message, beside role, content and calls."""
_JOINED = ("text", "summary")


@attrs.define
class Reasoning:
    """The reasoning of one answer.

    Attributes:
        _fields: the pieces of each of `TEXT_FIELDS` that the server has sent, may be empty.
        _extra_content: Gemini's signatures.
    """

    _fields: dict[str, list[str]] = attrs.field(factory=dict)
    _extra_content: object = None
    _details: list[dict[str, object]] = attrs.field(factory=list)

    def push(self, delta: JsonObject) -> str:
        """Take a delta and return its reasoning as text, may be empty."""
        texts = {name: text for name in TEXT_FIELDS if isinstance(text := delta.get(name), str)}
        for name, text in texts.items():
            self._fields.setdefault(name, []).append(text)
        self._extra_content = delta.get("extra_content") or self._extra_content
        details = self._take_details(delta.get("reasoning_details"))
        # Gateways send one text in two fields, and again in the details: the first counts
        return next(filter(None, texts.values()), details)

    def to_send_back(self) -> JsonObject:
        """Return the fields to add to the assistant's message in later requests; may be empty."""
        found: dict[str, object] = {}
        if self._details:
            found["reasoning_details"] = [_written(item) for item in self._details]
        if self._extra_content:
            found["extra_content"] = self._extra_content
        sent = {name: "".join(pieces) for name, pieces in self._fields.items()}
        if ECHOED in sent:
            found[ECHOED] = sent[ECHOED]
        elif not self._details and sent.get(PLAIN):
            found[PLAIN] = sent[PLAIN]
        return found

    def _take_details(self, details: object) -> str:
        items = (
            [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
        )
        for item in items:
            self._merge(item)
        return "".join(text for it in items for key in _JOINED if isinstance(text := it.get(key), str))

    def _merge(self, item: Mapping[str, object]) -> None:
        """Join fragments to blocks: a signature is valid for the whole text only."""
        last = self._details[-1] if self._details else None
        if last is None or not _continues(last, item):
            self._details.append(dict(item))
            return
        for key, value in item.items():
            if key in _JOINED and isinstance(value, str):
                self._join(last, key, value)
            elif value is not None:
                last[key] = value

    def _join(self, last: dict[str, object], key: str, value: str) -> None:
        before = last.get(key)
        if not isinstance(before, GrowingText):
            last[key] = GrowingText([before] if isinstance(before, str) else [])
        cast("GrowingText", last[key]).add(value)


def _written(item: Mapping[str, object]) -> dict[str, object]:
    return {key: str(value) if isinstance(value, GrowingText) else value for key, value in item.items()}


def _continues(last: Mapping[str, object], item: Mapping[str, object]) -> bool:
    """Return whether *item* continues *last*; encrypted blocks come whole."""
    if item.get("type") == "reasoning.encrypted" or last.get("signature"):
        return False
    same = all(last.get(key) == item.get(key) for key in ("type", "index"))
    return same and (not item.get("id") or last.get("id") in (None, item.get("id")))
