"""From the chunks of one chat completion to provider events.  Pure.

Rule: the content decides, not ``finish_reason``.  A complete tool call makes the turn go on unless the
reason is a length, a refusal or an error.  Unknown parts are ignored; a chunk of any shape raises
nothing but a `ProviderError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from hango.call_ids import CallIds
from hango.domain import (
    Block,
    BlockStart,
    BlockStop,
    JsonObject,
    OpaqueBlock,
    ProviderEvent,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    Usage,
    UsageUpdate,
)
from hango.providers import failures
from hango.providers.fields import count_at, object_at, objects_in, storable
from hango.providers.openai.calls import CallAssembler
from hango.providers.openai.reasoning import Reasoning
from hango.text import TextJoiner

# Indexes of the blocks.  A chat completion has one text and one reasoning, so their order is fixed.
THINKING, TEXT, FIRST_CALL = 0, 1, 2

# Finish reasons in lower case.  The first of each row is OpenAI's; the others are sent by Mistral, TGI,
# Together, DeepSeek, mlx-lm, and by gateways that pass on Anthropic's.
_ENDS = ("stop", "eos", "eos_token", "end_turn", "")
_ASKS = ("tool_calls", "tool_call", "function_call", "tool_use")
_STOPS: Mapping[str, StopReason] = {
    **dict.fromkeys(_ENDS, StopReason.END_TURN),
    **dict.fromkeys(_ASKS, StopReason.TOOL_USE),
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "pause_turn": StopReason.PAUSE_TURN,
    "model_context_window_exceeded": StopReason.CONTEXT_EXCEEDED,
}
_GRAVE: Mapping[str, StopReason] = {
    **dict.fromkeys(("length", "max_tokens", "model_length"), StopReason.MAX_TOKENS),
    **dict.fromkeys(("content_filter", "refusal"), StopReason.REFUSAL),
}
_FAILED = frozenset({"error", "insufficient_system_resource", "abort"})


@attrs.define
class ChatAnswer:
    """The answer so far.

    Attributes:
        _provider: the name that opaque blocks carry.
        _offered: names of the tools of the request.
        _refused: the server sent a refusal.
        _label: the finish reason, in lower case; empty until it has come.
    """

    _provider: str
    _ids: CallIds
    _offered: Collection[str] = ()
    _calls: CallAssembler = attrs.field(init=False)
    _reasoning: Reasoning = attrs.field(factory=Reasoning)
    _joiners: dict[int, TextJoiner] = attrs.field(factory=dict)
    _label: str = ""
    _refused: bool = False
    _chosen: bool = False

    @_calls.default
    def _no_calls(self) -> CallAssembler:
        return CallAssembler(self._ids, FIRST_CALL, self._offered)

    @property
    def finished(self) -> bool:
        """Whether the finish reason has come; usage may still follow."""
        return bool(self._label)

    @property
    def closed(self) -> bool:
        """Never: the last event, ``[DONE]``, is no JSON."""
        return False

    @property
    def recognised(self) -> bool:
        """Whether any part of it had choices, as all chat completions have."""
        return self._chosen

    @property
    def begun(self) -> bool:
        """Whether any content has come."""
        return bool(self._joiners or self._calls.begun)

    def push(self, chunk: JsonObject) -> Iterator[ProviderEvent]:
        """Take one chunk, or a whole ``chat.completion``; yields the new events, may be none."""
        self._chosen = self._chosen or isinstance(chunk.get("choices"), list)
        for choice in objects_in(chunk.get("choices")):
            if not choice.get("index"):
                yield from self._choice(choice)
        yield from read_usage(chunk)

    def read_usage(self, value: JsonObject) -> Iterator[ProviderEvent]:
        """Return the token counts of an event that is an error; may be none."""
        return read_usage(value)

    def reject(self, error: failures.CallRejected) -> Iterator[ProviderEvent]:
        """End the answer with a call that the server refused to pass on."""
        self._calls.reject(error.generation, error.code)
        self._label = _ASKS[0]
        yield from self.finish()

    def finish(self) -> Iterator[ProviderEvent]:
        """End the answer; the last event is its `Stop`.

        Raises:
            UnsupportedStop: the finish reason is unknown, and there is no tool call.
            ProviderError: the finish reason is an error.
        """
        for block, joiner in sorted(self._joiners.items()):
            if rest := joiner.finish():
                yield _delta(block, rest)
        yield from self._calls.finish()
        stop = self._stop()
        blocks = [*sorted(self._joiners), *(slot.block for slot in self._calls.begun_calls())]
        if raw := self._to_send_back():
            blocks.append(max(blocks, default=-1) + 1)
            yield BlockStart(blocks[-1], OpaqueBlock(self._provider, raw))
        yield from map(BlockStop, blocks)
        yield Stop(stop)

    def _choice(self, choice: JsonObject) -> Iterator[ProviderEvent]:
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            yield from self._delta(delta)
        label = choice.get("finish_reason")
        # A later reason replaces the first, but none makes a cut answer whole
        if isinstance(label, str) and label and self._label not in _GRAVE:
            self._label = label.lower()

    def _delta(self, delta: JsonObject) -> Iterator[ProviderEvent]:
        text, thought = _parts(delta.get("content"))
        yield from self._say(THINKING, self._reasoning.push(delta) + thought)
        yield from self._say(TEXT, text)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            yield from self._say(TEXT, refusal)
        for value in objects_in(delta.get("tool_calls")):
            yield from self._calls.push(value)
        if isinstance(function := delta.get("function_call"), dict):  # the form of calls before 2024
            yield from self._calls.push({"index": 0, "function": function})

    def _say(self, block: int, piece: str) -> Iterator[ProviderEvent]:
        if not piece:
            return
        if block not in self._joiners:
            self._joiners[block] = TextJoiner()
            empty: Block = ThinkingBlock("") if block == THINKING else TextBlock("")
            yield BlockStart(block, empty)
        if text := self._joiners[block].push(piece):
            yield _delta(block, text)

    def _stop(self) -> StopReason:
        label, calls = self._label, self._calls.begun_calls()
        if label in _FAILED:
            failure = failures.ErrorReply(f"the answer ended with finish_reason {label}", label)
            raise failures.to_error(failure, provider=self._provider)
        if label in _GRAVE or self._refused:
            return _GRAVE.get(label, StopReason.REFUSAL)
        if calls and (label in _STOPS or any(slot.complete or slot.blank for slot in calls)):
            return StopReason.TOOL_USE
        if label in _STOPS:
            return _STOPS[label]
        raise failures.unknown_stop(self._provider, label)

    def _to_send_back(self) -> JsonObject:
        """Return what the server wants back with this answer, for `request`; may be empty."""
        found = {
            "calls": {s.id: s.to_send_back for s in self._calls.begun_calls() if s.to_send_back},
            "message": self._reasoning.to_send_back(),
        }
        return storable({key: value for key, value in found.items() if value})


def _delta(block: int, text: str) -> ProviderEvent:
    return ThinkingDelta(block, text) if block == THINKING else TextDelta(block, text)


def _parts(content: object) -> tuple[str, str]:
    """Return text and reasoning of a content, which is a text or (Mistral) a list of parts."""
    if isinstance(content, str):
        return content, ""
    parts = objects_in(content)
    thoughts = [thought for part in parts for thought in objects_in(part.get("thinking"))]
    return _texts(parts), _texts(thoughts)


def _texts(parts: Sequence[JsonObject]) -> str:
    return "".join(text for part in parts if isinstance(text := part.get("text"), str))


# --- token counts ---------------------------------------------------------------------------


def read_usage(chunk: JsonObject) -> Iterator[UsageUpdate]:
    """Yield the token counts of *chunk*; nothing if it has none that can be one, since that is not 0.

    ``prompt_tokens`` includes cached ones, as hango counts.  Groq hides it in ``x_groq``, DeepSeek has
    its own word for cached tokens.
    """
    usage = object_at(chunk, "usage") or object_at(object_at(chunk, "x_groq"), "usage")
    if not any(
        isinstance(count_at(usage, name), int) for name in ("prompt_tokens", "completion_tokens")
    ):
        return
    sent, made = (
        object_at(usage, "prompt_tokens_details"),
        object_at(usage, "completion_tokens_details"),
    )
    yield UsageUpdate(
        Usage(
            input_tokens=count_at(usage, "prompt_tokens") or 0,
            output_tokens=count_at(usage, "completion_tokens") or 0,
            cache_read_input_tokens=count_at(sent, "cached_tokens")
            or count_at(usage, "prompt_cache_hit_tokens")
            or 0,
            cache_write_input_tokens=count_at(sent, "cache_write_tokens") or 0,
            reasoning_output_tokens=count_at(made, "reasoning_tokens") or 0,
        )
    )
