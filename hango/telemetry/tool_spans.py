"""The tool call that a task runs, so that whatever it calls can say why it failed."""

from __future__ import annotations

import time
from contextvars import ContextVar

import attrs
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span

_current: ContextVar[OpenCall | None] = ContextVar("hango.tool_call", default=None)


@attrs.define(eq=False)
class OpenCall:
    """A tool call under way, which is the current span of its task.

    Attributes:
        tool: as metrics have it: registered, or ``_unknown``.
        call_id: the model's.
        error: kind of its failure; empty as long as it has not failed.
    """

    tool: str
    call_id: str
    span: Span
    started: float = attrs.field(factory=time.perf_counter)
    error: str = ""

    def enter(self) -> None:
        """Make it the current call of this task, which ends with the call."""
        _current.set(self)
        if self.span.get_span_context().is_valid:
            contexts.attach(trace.set_span_in_context(self.span))

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self.started


def current_call() -> OpenCall | None:
    """Return the call that this task runs."""
    return _current.get()


def note_failure(kind: str) -> None:
    """Say why the call that this task runs has failed."""
    if (call := _current.get()) is not None:
        call.error = kind
