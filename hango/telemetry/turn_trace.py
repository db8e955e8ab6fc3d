"""The spans of one turn: its ``chain``, the model call and the tool calls in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextvars import Token
from datetime import UTC, datetime
from typing import Self

import attrs
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from hango.domain import (
    Message,
    ProviderEvent,
    Stop,
    StopReason,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UsageUpdate,
)
from hango.domain.names import is_api_name
from hango.telemetry import attributes, content, metrics, names
from hango.telemetry.answer_parts import AnswerParts
from hango.telemetry.ending import COMPLETED, Ending
from hango.telemetry.tool_spans import OpenCall, current_call

_tracer = trace.get_tracer("hango")


@attrs.define(eq=False)
class _Chat:
    """A model call under way.

    Attributes:
        usage, lost: tokens of this try, and of those before it.
        first: seconds until the first event; None before it.
        parts: what it has said; None unless content is recorded.
    """

    span: Span
    token: Token[Context] | None
    parts: AnswerParts | None
    started: float = attrs.field(factory=time.perf_counter, init=False)
    usage: Usage = attrs.field(factory=Usage, init=False)
    lost: Usage = attrs.field(factory=Usage, init=False)
    first: float | None = attrs.field(default=None, init=False)
    first_at: datetime | None = attrs.field(default=None, init=False)


@attrs.define(eq=False)
class TurnTrace:
    """One turn.

    Attributes:
        number: of the turn, from 1.
        shared: attributes that every span of the run has.
        tools: names of the agent's tools; others are made up by the model.
        said: returns the session's messages.
        _token: what makes the span no longer the current one; None if it is not.
    """

    number: int
    span: Span
    shared: attributes.Attributes
    provider: str
    model: str
    tools: Collection[str]
    said: Callable[[], Iterable[Message]]
    _token: Token[Context] | None = attrs.field(default=None, init=False)
    _chat: _Chat | None = attrs.field(default=None, init=False)
    _calls: dict[OpenCall, None] = attrs.field(factory=dict, init=False)

    @classmethod
    def begin(
        cls,
        number: int,
        *,
        shared: attributes.Attributes,
        provider: str,
        model: str,
        tools: Collection[str],
        said: Callable[[], Iterable[Message]],
    ) -> Self:
        """Begin a turn, below the span that is the current one."""
        span: Span = trace.INVALID_SPAN
        if trace.get_current_span().is_recording():
            found = {names.TURN: number, **attributes.kind("chain"), **shared}
            span = _tracer.start_span("chain", kind=SpanKind.INTERNAL, attributes=found)
        return cls(number, span, shared, provider, model, tools, said)

    # --- the model ----------------------------------------------------------------------------

    def ask_model(self) -> None:
        """The model is called; turn and call are current spans of this task, which also ends them."""
        self._token = _enter(self.span)
        span = self._start_chat() if self.span.is_recording() else trace.INVALID_SPAN
        is_recorded = span.is_recording() and content.recorded()
        if is_recorded:
            span.set_attribute("gen_ai.input.messages", content.messages(self.said()))
        self._chat = _Chat(span, _enter(span), AnswerParts() if is_recorded else None)

    def _start_chat(self) -> Span:
        return _tracer.start_span(
            f"chat {self.model}" if self.model else "chat",
            kind=SpanKind.CLIENT,
            attributes={
                names.OPERATION: "chat",
                **attributes.of_model(self.provider, self.model),
                "gen_ai.request.stream": True,
                "llm.model_name": self.model,
                names.TURN: self.number,
                **attributes.kind("generation"),
                **self.shared,
            },
        )

    def streamed(self, event: ProviderEvent) -> None:
        """The model has sent *event*."""
        if (chat := self._chat) is None:
            return
        if chat.first is None:
            chat.first, chat.first_at = time.perf_counter() - chat.started, datetime.now(UTC)
        if chat.parts is not None:
            chat.parts.add(event)
        if isinstance(event, UsageUpdate):
            chat.usage = event.usage
        elif isinstance(event, Stop):
            self._end_chat(event.reason, COMPLETED)

    def retry(self, code: str, *, broke_off: bool) -> None:
        """The call failed and is made again, by the provider's *code*."""
        code = code if is_api_name(code) else names.OTHER  # a server may answer any text as its code
        label = metrics.error_codes.of(code)
        metrics.provider_retries.add(1, {names.PROVIDER: self.provider, names.ERROR_TYPE: label})
        if (chat := self._chat) is not None:
            chat.lost, chat.usage = chat.lost + chat.usage, Usage()
            chat.span.add_event("retry", {names.ERROR_TYPE: code, "hango.broke_off": broke_off})
            if chat.parts is not None:
                chat.parts = AnswerParts()

    def _end_chat(self, reason: StopReason | None, ending: Ending) -> None:
        if (chat := self._chat) is None:
            return
        self._chat = None
        seconds, usage = time.perf_counter() - chat.started, chat.lost + chat.usage
        self._count_chat(chat, seconds, usage, ending)
        if chat.token is not None:
            contexts.detach(chat.token)
        if not chat.span.is_recording():
            return
        found: dict[str, attributes.Value] = {
            "gen_ai.response.finish_reasons": (attributes.finish_reason(reason),)
        }
        if usage != Usage():
            found |= attributes.of_usage(usage)
        if chat.first is not None and chat.first_at is not None:
            found["gen_ai.response.time_to_first_chunk"] = chat.first
            found["langfuse.observation.completion_start_time"] = chat.first_at.isoformat()
        if chat.parts is not None:
            found["gen_ai.output.messages"] = content.answer(chat.parts.parts())
        chat.span.set_attributes(found)
        _finish(chat.span, attrs.evolve(ending, kind=ending.provider or ending.kind))

    def _count_chat(self, chat: _Chat, seconds: float, usage: Usage, ending: Ending) -> None:
        asked = {names.PROVIDER: self.provider, names.MODEL: metrics.models.of(self.model)}
        labels = {names.OPERATION: "chat", **asked}
        error = {names.ERROR_TYPE: ending.kind} if ending.is_error else {}
        metrics.inference_duration.record(seconds, {**labels, **error})
        if chat.first is not None:
            metrics.inference_first_chunk.record(chat.first, labels)
        for field, counter in metrics.token_counters.items():
            if count := getattr(usage, field):
                counter.add(count, asked)

    # --- the tools ----------------------------------------------------------------------------

    def start_tool(self, call: ToolUseBlock) -> None:
        """A tool call begins in this task, which ends with it."""
        label = call.name if call.name in self.tools else names.UNKNOWN
        span = self._start_tool(call, label) if self.span.is_recording() else trace.INVALID_SPAN
        opened = OpenCall(label, call.id, span)
        self._calls[opened] = None
        opened.enter()

    def _start_tool(self, call: ToolUseBlock, label: str) -> Span:
        found: dict[str, attributes.Value] = {
            names.OPERATION: "execute_tool",
            **self._of_call(call, label),
            "gen_ai.tool.type": "function",
            names.TURN: self.number,
            **attributes.kind("tool"),
            **self.shared,
        }
        if content.recorded():
            found["gen_ai.tool.call.arguments"] = content.arguments(call)
        parent = trace.set_span_in_context(self.span)
        return _tracer.start_span(f"execute_tool {label}", parent, SpanKind.INTERNAL, found)

    def deny_tool(self, call: ToolUseBlock) -> None:
        """A guardrail has denied a call."""
        label = call.name if call.name in self.tools else names.UNKNOWN
        self.event("guardrail.denied", self._of_call(call, label))

    def finish_tool(self, result: ToolResultBlock) -> None:
        """The call of this task has a result."""
        opened = current_call()
        if opened is None or opened not in self._calls or opened.call_id != result.tool_use_id:
            return  # denied, so it never began
        error = (opened.error or "tool_error") if result.is_error else ""
        if content.recorded() and opened.span.is_recording():
            opened.span.set_attribute("gen_ai.tool.call.result", content.cut(result.content))
        self._end_call(opened, Ending(error, is_error=bool(error)))

    def _end_call(self, opened: OpenCall, ending: Ending) -> None:
        del self._calls[opened]
        labels = {names.TOOL_NAME: opened.tool}
        if ending.is_error:
            labels[names.ERROR_TYPE] = ending.kind
        metrics.tool_duration.record(opened.seconds, labels)
        _finish(opened.span, ending)

    def _of_call(self, call: ToolUseBlock, label: str) -> attributes.Attributes:
        name = call.name if content.recorded() else label
        ids = {"gen_ai.tool.call.id": call.id} if is_api_name(call.id) else {}
        return {names.TOOL_NAME: name, **ids}

    # --- the turn -----------------------------------------------------------------------------

    def event(self, name: str, found: attributes.Attributes) -> None:
        """Add an event to the turn."""
        self.span.add_event(name, dict(found))

    def end(self, ending: Ending = COMPLETED) -> None:
        """End whatever is open, with what ended it."""
        self._end_chat(None, ending)
        for opened in tuple(self._calls):
            self._end_call(opened, ending)
        if self._token is not None:
            contexts.detach(self._token)
        _finish(self.span, ending)


def _enter(span: Span) -> Token[Context] | None:
    """Make *span* the current one; None if there is nothing to trace."""
    if not span.get_span_context().is_valid:
        return None
    return contexts.attach(trace.set_span_in_context(span))


def _finish(span: Span, ending: Ending) -> None:
    if span.is_recording():
        span.set_attributes(dict(ending.described))
        if ending.is_error:
            span.set_status(Status(StatusCode.ERROR, ending.kind))
    span.end()
