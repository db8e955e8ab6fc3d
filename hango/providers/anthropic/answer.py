"""From the events of one message to provider events.  Pure.

Rule: the content decides, not ``stop_reason``.  A complete tool call makes the turn go on unless the
reason is a length, a refusal or an error.  Unknown events and deltas are ignored, unknown blocks kept;
an event of any shape raises nothing but a `ProviderError`.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from hango.call_ids import CallIds
from hango.domain import (
    BlockStart,
    BlockStop,
    JsonObject,
    ProviderEvent,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    Usage,
    UsageUpdate,
)
from hango.providers import failures
from hango.providers.anthropic.blocks import MessageBlock, start_block
from hango.providers.fields import as_text, count_at, object_at, objects_in

_STOPS: Mapping[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "": StopReason.END_TURN,  # servers that only close the message
    "tool_use": StopReason.TOOL_USE,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "pause_turn": StopReason.PAUSE_TURN,
}
_GRAVE: Mapping[str, StopReason] = {
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.CONTEXT_EXCEEDED,
}
# The block that a delta belongs to if no block was announced
_IMPLIED: Mapping[str, str] = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "tool_use",
}


@attrs.define
class MessageAnswer:
    """The answer so far.

    Attributes:
        _provider: the name that blocks to send back carry.
        _blocks: all blocks, in the order they began.
        _at: the block that a delta belongs to, by the server's index.
        _usage: the latest of each count that the server has told.
        _label: the stop reason, in lower case; empty until it has come.
        _details: why the model refused, as far as the server says it.
    """

    _provider: str
    _ids: CallIds
    recognised: bool = attrs.field(default=False, init=False)
    closed: bool = attrs.field(default=False, init=False)
    _blocks: list[MessageBlock] = attrs.field(factory=list, init=False)
    _at: dict[int, MessageBlock] = attrs.field(factory=dict, init=False)
    _usage: dict[str, int] = attrs.field(factory=dict, init=False)
    _label: str = attrs.field(default="", init=False)
    _details: JsonObject = attrs.field(factory=dict, init=False)

    @property
    def finished(self) -> bool:
        """Whether the stop reason has come; usage may still follow."""
        return bool(self._label)

    @property
    def begun(self) -> bool:
        """Whether any content has come."""
        return bool(self._blocks)

    def push(self, value: JsonObject) -> Iterator[ProviderEvent]:
        """Take one event, or a whole message; yields the new events, may be none."""
        kind = value.get("type")
        self.recognised = self.recognised or kind in ("message", "message_start")
        match kind:
            case "message_start":
                yield from self._message(object_at(value, "message"))
            case "message":
                yield from self._message(value)
            case "content_block_start":
                yield from self._start(value.get("index"), object_at(value, "content_block"))
            case "content_block_delta":
                yield from self._delta(value.get("index"), object_at(value, "delta"))
            case "content_block_stop":
                yield from self._stop_block(value.get("index"))
            case "message_delta":
                self._take_reason(object_at(value, "delta"))
                yield from self.read_usage(value)
            case "message_stop":
                self.closed = True

    def read_usage(self, value: JsonObject) -> Iterator[ProviderEvent]:
        """Yield the token counts so far, if *value* tells any.

        They are cumulative, and a later event need not repeat those of an earlier one.
        """
        usage = object_at(value, "usage")
        told = {name: count for name in _COUNTS if (count := count_at(usage, name)) is not None}
        thinking = count_at(object_at(usage, "output_tokens_details"), "thinking_tokens")
        if thinking is not None:
            told["thinking_tokens"] = thinking
        if told:
            self._usage |= told
            yield UsageUpdate(_to_usage(self._usage))

    def reject(self, error: failures.CallRejected) -> Iterator[ProviderEvent]:
        """Raise *error*: this API knows no refused calls."""
        raise error

    def finish(self) -> Iterator[ProviderEvent]:
        """End the answer; the last event is its `Stop`.

        Raises:
            UnsupportedStop: the stop reason is unknown, and there is no tool call.
        """
        for block in self._blocks:
            yield from block.stop()
        stop = self._stop_reason()
        if stop is StopReason.REFUSAL:
            yield from self._refusal()
        yield Stop(stop)

    def _message(self, message: JsonObject) -> Iterator[ProviderEvent]:
        """Take the head of an answer, or one that was not streamed."""
        for content in objects_in(message.get("content")):
            yield from self._start(None, content)
            yield from self._blocks[-1].stop()
        self._take_reason(message)
        yield from self.read_usage(message)

    def _take_reason(self, source: JsonObject) -> None:
        # A later reason replaces the first, but none makes a cut answer whole
        if (label := as_text(source.get("stop_reason"))) and self._label not in _GRAVE:
            self._label = label.lower()
        self._details = object_at(source, "stop_details") or self._details

    def _start(self, index: object, content: JsonObject) -> Iterator[ProviderEvent]:
        block = start_block(2 * len(self._blocks), content, self._provider, self._ids)
        self._blocks.append(block)
        self._at[index if type(index) is int else -1] = block
        yield from block.start()

    def _delta(self, index: object, delta: JsonObject) -> Iterator[ProviderEvent]:
        block = self._block_at(index)
        if block is None:
            implied = _IMPLIED.get(as_text(delta.get("type")))
            if implied is None:
                return
            yield from self._start(index, {"type": implied})
            block = self._blocks[-1]
        yield from block.push(delta)

    def _stop_block(self, index: object) -> Iterator[ProviderEvent]:
        if block := self._block_at(index):
            yield from block.stop()

    def _block_at(self, index: object) -> MessageBlock | None:
        """Return the block at the server's *index*; without one, the latest."""
        if type(index) is int:
            return self._at.get(index)
        return self._blocks[-1] if self._blocks else None

    def _stop_reason(self) -> StopReason:
        label = self._label
        if label in _GRAVE:
            return _GRAVE[label]
        if any(block.is_call and (label in _STOPS or block.complete) for block in self._blocks):
            return StopReason.TOOL_USE
        if label in _STOPS:
            return _STOPS[label]
        raise failures.unknown_stop(self._provider, label)

    def _refusal(self) -> Iterator[ProviderEvent]:
        """Say why the model refused, as a text of its own: people and later turns should know."""
        category, said = (as_text(self._details.get(key)) for key in ("category", "explanation"))
        if not (category or said):
            return
        label = f"Refused ({category})" if category else "Refused"
        place = 2 * len(self._blocks)
        yield BlockStart(place, TextBlock(""))
        yield TextDelta(place, f"{label}: {said}" if said else f"{label}.")
        yield BlockStop(place)


# --- token counts ---------------------------------------------------------------------------

_INPUT, _OUTPUT = "input_tokens", "output_tokens"
_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
_COUNTS = (_INPUT, _OUTPUT, _READ, _WRITTEN)


def _to_usage(told: Mapping[str, int]) -> Usage:
    """Return counts as hango has them: ``input_tokens`` of this API leaves out what is cached."""
    read, written = told.get(_READ, 0), told.get(_WRITTEN, 0)
    return Usage(
        input_tokens=told.get(_INPUT, 0) + read + written,
        output_tokens=told.get(_OUTPUT, 0),
        cache_read_input_tokens=read,
        cache_write_input_tokens=written,
        reasoning_output_tokens=told.get("thinking_tokens", 0),
    )
