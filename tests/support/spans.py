"""What hango's spans say, read from the SDK: the trees of traces, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from hango.telemetry.id_generator import RunIds

_exporter = InMemorySpanExporter()
_provider = TracerProvider(id_generator=RunIds())
_provider.add_span_processor(SimpleSpanProcessor(_exporter))
trace.set_tracer_provider(_provider)


@contextmanager
def recorded() -> Iterator[list[ReadableSpan]]:
    """Record the spans that end in the block; the list is filled when it is left."""
    _exporter.clear()
    found: list[ReadableSpan] = []
    yield found
    found += sorted(_exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def so_far() -> Sequence[ReadableSpan]:
    """Return the spans that have ended since the block began."""
    return _exporter.get_finished_spans()


def attribute(span: ReadableSpan, name: str) -> object:
    """Return an attribute of *span*; None if it has none of that name."""
    return (span.attributes or {}).get(name)


def tree(spans: Sequence[ReadableSpan], trace_id: str) -> list[str]:
    """Return a trace as lines: name, kind, what went wrong and events, indented below the parent."""
    mine = [span for span in spans if span.context and f"{span.context.trace_id:032x}" == trace_id]
    return [line for span in mine if span.parent is None for line in _lines(span, mine, "")]


def _lines(span: ReadableSpan, spans: Sequence[ReadableSpan], indent: str) -> Iterator[str]:
    words = [span.name, span.kind.name[0]]
    if span.status.status_code is StatusCode.ERROR:
        assert span.status.description == attribute(span, "error.type")
        words.append(f"!{span.status.description}")
    elif interrupted := attribute(span, "hango.interrupted"):
        words.append(f"~{interrupted}")
    words += [f"+{event.name}" for event in span.events]
    yield indent + " ".join(words)
    for child in spans:
        if child.parent is not None and child.parent.span_id == span.context.span_id:
            yield from _lines(child, spans, indent + "  ")
