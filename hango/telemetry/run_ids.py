"""The ids of a run's root span: drawn before the span, and stored on the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Trace and span id of the span that is started next; None: random.
_next: ContextVar[tuple[int, int] | None] = ContextVar("hango.root_span", default=None)


@contextmanager
def root_ids(trace_id: int, span_id: int) -> Iterator[None]:
    """Give the one span that is started in the block, which must have no parent, these ids."""
    token = _next.set((trace_id, span_id))
    try:
        yield
    finally:
        _next.reset(token)


def given_ids() -> tuple[int, int] | None:
    """Return trace and span id of the span that is being started; None if they are random."""
    return _next.get()
