"""The blocks of one message as they arrive.  Pure; for `answer` only.

What people read and what hango acts on becomes a block of hango's.  Everything else is kept to be sent
back as it came: a block of another type as a whole, and the further fields of a text or a call beside
it, in an opaque block at the place after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import attrs

from hango.call_ids import CallIds
from hango.codec import REPLACEMENT, clean_text
from hango.domain import (
    BlockStart,
    BlockStop,
    InputDelta,
    JsonObject,
    OpaqueBlock,
    ProviderEvent,
    RedactedThinkingBlock,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from hango.domain.names import is_api_name
from hango.providers.fields import as_text, objects_in, storable
from hango.text import GrowingText, TextJoiner

MAX_WIRE_ID = 256  # characters; a longer id does not go back as it came
# Keys of what is kept in an opaque block
WHOLE, OF_TEXT, OF_CALL = "block", "text", "call"
# Further fields of a call that must go back with it
CALL_FIELDS = ("caller", "toolset_name")


@attrs.define
class MessageBlock:
    """One block; the base of those below, and itself one that nothing is known of.

    Attributes:
        place: its index among the events of the answer; the one after it is free for what is kept.
        content: as ``content_block_start`` had it.
        complete: its end was announced.
    """

    place: int
    content: JsonObject
    provider: str
    complete: bool = attrs.field(default=False, init=False)
    is_call: bool = attrs.field(default=False, init=False)
    _fields: dict[str, object] = attrs.field(factory=dict, init=False)
    _input: GrowingText = attrs.field(factory=GrowingText, init=False)

    def start(self) -> Iterator[ProviderEvent]:
        """Begin the block; yields the events, may be none."""
        self._fields = dict(self.content)
        return iter(())

    def push(self, delta: JsonObject) -> Iterator[ProviderEvent]:
        """Take one delta; yields the events, may be none."""
        if delta.get("type") == "input_json_delta":
            self._input.add(as_text(delta.get("partial_json")))
        else:
            for key, value in delta.items():
                self._merge(key, value)
        return iter(())

    def stop(self) -> Iterator[ProviderEvent]:
        """End the block, once; yields the rest of its events."""
        if not self.complete:
            self.complete = True
            yield from self._finish()

    def _finish(self) -> Iterator[ProviderEvent]:
        if str(self._input).strip():
            try:
                self._fields["input"] = json.loads(str(self._input))
            except (ValueError, RecursionError):
                return  # a server tool whose input is cut has no result either
        yield from self._keep(self.place, {WHOLE: _joined(self._fields)})

    def _merge(self, key: str, value: object) -> None:
        """Add to a field: text is appended, except that a signature replaces the one before."""
        before = self._fields.get(key)
        if key == "type" or value is None:
            return
        if isinstance(value, str) and isinstance(before, str | GrowingText) and key != "signature":
            if isinstance(before, str):
                before = self._fields[key] = GrowingText([before])
            before.add(value)
        else:
            self._fields[key] = value

    def _keep(self, place: int, raw: JsonObject) -> Iterator[ProviderEvent]:
        if storable(raw):
            yield BlockStart(place, OpaqueBlock(self.provider, raw))
            yield BlockStop(place)


@attrs.define
class _Text(MessageBlock):
    """A text; its citations are kept beside it."""

    _joiner: TextJoiner = attrs.field(factory=TextJoiner, init=False)
    _citations: list[JsonObject] = attrs.field(factory=list, init=False)
    _blank: bool = attrs.field(default=True, init=False)

    def start(self) -> Iterator[ProviderEvent]:
        yield BlockStart(self.place, TextBlock(""))
        self._citations += objects_in(self.content.get("citations"))
        yield from self._say(self._joiner.push(as_text(self.content.get("text"))))

    def push(self, delta: JsonObject) -> Iterator[ProviderEvent]:
        self._citations += objects_in([delta.get("citation")])
        yield from self._say(self._joiner.push(as_text(delta.get("text"))))

    def _finish(self) -> Iterator[ProviderEvent]:
        yield from self._say(self._joiner.finish())
        yield BlockStop(self.place)
        if self._citations and not self._blank:
            yield from self._keep(self.place + 1, {OF_TEXT: {"citations": self._citations}})

    def _say(self, text: str) -> Iterator[ProviderEvent]:
        if text:
            self._blank = self._blank and not text.strip()
            yield TextDelta(self.place, text)


@attrs.define
class _Thinking(MessageBlock):
    """Reasoning; its signature is given out at its end, and only if the text is what was signed."""

    _joiner: TextJoiner = attrs.field(factory=TextJoiner, init=False)
    _signature: str = attrs.field(default="", init=False)
    _broken: int = attrs.field(default=0, init=False)  # characters that had to be replaced

    def start(self) -> Iterator[ProviderEvent]:
        yield BlockStart(self.place, ThinkingBlock("", provider=self.provider))
        yield from self.push(self.content)

    def push(self, delta: JsonObject) -> Iterator[ProviderEvent]:
        self._signature = as_text(delta.get("signature")) or self._signature
        piece = as_text(delta.get("thinking"))
        self._broken -= piece.count(REPLACEMENT)
        yield from self._say(self._joiner.push(piece))

    def _finish(self) -> Iterator[ProviderEvent]:
        yield from self._say(self._joiner.finish())
        if self._signature and not self._broken:
            yield SignatureDelta(self.place, self._signature)
        yield BlockStop(self.place)

    def _say(self, text: str) -> Iterator[ProviderEvent]:
        if text:
            self._broken += text.count(REPLACEMENT)
            yield ThinkingDelta(self.place, text)


@attrs.define
class _Redacted(MessageBlock):
    """Reasoning that is encrypted; it comes whole."""

    def start(self) -> Iterator[ProviderEvent]:
        data = as_text(self.content.get("data"))
        yield BlockStart(self.place, RedactedThinkingBlock(data, self.provider))

    def push(self, delta: JsonObject) -> Iterator[ProviderEvent]:  # noqa: ARG002 - none is known
        return iter(())

    def _finish(self) -> Iterator[ProviderEvent]:
        yield BlockStop(self.place)


@attrs.define
class _Call(MessageBlock):
    """A call of a tool of ours; its input is parsed when it is complete, by who collects the events."""

    _ids: CallIds
    _joiner: TextJoiner = attrs.field(factory=TextJoiner, init=False)

    def start(self) -> Iterator[ProviderEvent]:
        self.is_call = True
        wire_id, name = as_text(self.content.get("id")), as_text(self.content.get("name"))
        given = self.content.get("input")
        call = ToolUseBlock(self._ids.give(wire_id), name, given if isinstance(given, Mapping) else {})
        yield BlockStart(self.place, call)
        if given is not None and not isinstance(given, Mapping):  # text, or what is no input at all
            yield from self.push({"partial_json": given})
        self._fields = self._to_send_back(wire_id, call.id)

    def push(self, delta: JsonObject) -> Iterator[ProviderEvent]:
        piece = delta.get("partial_json")
        text = piece if isinstance(piece, str) else "" if piece is None else json.dumps(piece)
        yield from self._say(self._joiner.push(text))

    def _finish(self) -> Iterator[ProviderEvent]:
        yield from self._say(self._joiner.finish())
        yield BlockStop(self.place)
        if self._fields:
            yield from self._keep(self.place + 1, {OF_CALL: self._fields})

    def _say(self, text: str) -> Iterator[ProviderEvent]:
        if text:
            yield InputDelta(self.place, text)

    def _to_send_back(self, wire_id: str, given: str) -> dict[str, object]:
        found = {key: value for key in CALL_FIELDS if (value := self.content.get(key)) is not None}
        if found.get("caller") == {"type": "direct"}:  # which is the default
            del found["caller"]
        own = wire_id and wire_id != given and not is_api_name(wire_id)
        if own and len(wire_id) <= MAX_WIRE_ID and clean_text(wire_id) == wire_id:
            found["id"] = wire_id
        return found


def start_block(place: int, content: JsonObject, provider: str, ids: CallIds) -> MessageBlock:
    """Return the block that *content* begins."""
    match content.get("type"):
        case "text":
            return _Text(place, content, provider)
        case "thinking":
            return _Thinking(place, content, provider)
        case "redacted_thinking":
            return _Redacted(place, content, provider)
        case "tool_use":
            return _Call(place, content, provider, ids)
        case _:
            return MessageBlock(place, content, provider)


def _joined(fields: Mapping[str, object]) -> JsonObject:
    return {k: str(value) if isinstance(value, GrowingText) else value for k, value in fields.items()}
