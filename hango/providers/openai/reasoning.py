"""Reasoning in a chat completion: three dialects, and what must be sent back of each.

One rule: what a server wants back is kept apart, as it was; the text that is told is for people, and no
other API takes it back.  Pure; for `answer` only.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from hango.domain import JsonObject

# Thinking models of DeepSeek and Moonshot refuse a conversation whose assistant messages came with this
# field and go back without it, be it empty (https://api-docs.deepseek.com/guides/thinking_mode).
ECHOED = "reasoning_content"
_JOINED = ("text", "summary")


@attrs.define
class Thoughts:
    """The reasoning of one answer.

    Attributes:
        _echoed: the pieces the server called `ECHOED`; None while it has not used that name.
        _extra_content: what came beside the answer (Gemini's signatures).
    """

    _echoed: list[str] | None = None
    _extra_content: object = None
    _details: list[dict[str, object]] = attrs.field(factory=list)

    def push(self, delta: JsonObject) -> str:
        """Take a delta and return its reasoning as text; may be empty."""
        if isinstance(echoed := delta.get(ECHOED), str):
            self._echoed = self._echoed or []
            self._echoed.append(echoed)
        self._extra_content = delta.get("extra_content") or self._extra_content
        told = self._take_details(delta.get("reasoning_details"))
        # Gateways send one text under two names, and again in the details: the first one counts
        for field in (ECHOED, "reasoning"):
            if isinstance(text := delta.get(field), str) and text:
                return text
        return told

    def to_send_back(self) -> JsonObject:
        """Return the fields the assistant's message gets when it goes back; may be empty."""
        found: dict[str, object] = {}
        if self._echoed is not None:
            found[ECHOED] = "".join(self._echoed)
        if self._details:
            found["reasoning_details"] = self._details
        if self._extra_content:
            found["extra_content"] = self._extra_content
        return found

    def _take_details(self, details: object) -> str:
        told = ""
        for item in details if isinstance(details, list) else []:
            if isinstance(item, dict):
                told += "".join(text for key in _JOINED if isinstance(text := item.get(key), str))
                self._merge(item)
        return told

    def _merge(self, item: Mapping[str, object]) -> None:
        """Make whole blocks of fragments: a signature is of the whole text, and refused on a part."""
        last = self._details[-1] if self._details else None
        if last is None or not _continues(last, item):
            self._details.append(dict(item))
            return
        for key, value in item.items():
            if key in _JOINED and isinstance(value, str):
                before = last.get(key)
                last[key] = (before if isinstance(before, str) else "") + value
            elif value is not None:
                last[key] = value


def _continues(last: Mapping[str, object], item: Mapping[str, object]) -> bool:
    """Whether *item* is more of *last*; encrypted blocks come whole."""
    if item.get("type") == "reasoning.encrypted" or last.get("signature"):
        return False
    same = all(last.get(key) == item.get(key) for key in ("type", "index"))
    return same and (not item.get("id") or last.get("id") in (None, item.get("id")))
