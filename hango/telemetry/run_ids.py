"""The ids of spans: those of a run's root are drawn before the span, and stored on the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

# Trace and span id of the next root span; None: random.  Read at once by `RunIds`, then reset.
_next: ContextVar[tuple[int, int] | None] = ContextVar("hango.root_span", default=None)


@contextmanager
def root_ids(trace_id: int, span_id: int) -> Iterator[None]:
    """Give the one span that is started in the block, which must have no parent, these ids."""
    token = _next.set((trace_id, span_id))
    try:
        yield
    finally:
        _next.reset(token)


class RunIds(RandomIdGenerator):
    """Random ids, but for spans that are started in `root_ids`."""

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        ids = _next.get()
        return super().generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        ids = _next.get()
        return super().generate_span_id() if ids is None else ids[1]
