"""The OpenTelemetry SDK of a process: metrics for Prometheus, and OTLP by the ``OTEL_*`` variables.

Rule: nothing here delays a run.  Spans and metrics are sent from threads of their own, what does not
fit into their bounded queues is dropped, and a shutdown waits for them for a bounded time only.

Pushed is what an endpoint is set for: ``OTEL_EXPORTER_OTLP_ENDPOINT``, or the one for traces or metrics
alone; ``OTEL_TRACES_EXPORTER=none``, ``OTEL_METRICS_EXPORTER=none`` and ``OTEL_SDK_DISABLED=true`` turn
it off.  The other variables (headers, timeout, sampler, batch sizes, resource) are the SDK's own.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio
from opentelemetry import metrics, trace
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from hango.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

SHUTDOWN = 5.0  # seconds a shutdown waits for what is still to be sent

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_HTTP = "http/protobuf"
_PACKAGE = "opentelemetry.exporter.otlp.proto.http"

Scrape: TypeAlias = Callable[[str], tuple[bytes, str]]
"""Takes an ``Accept`` header; returns the metrics as text, and its content type."""


@attrs.frozen
class Pushed:
    """What is pushed over OTLP."""

    traces: bool
    metrics: bool


def pushed(environ: Mapping[str, str]) -> Pushed:
    """Return what the ``OTEL_*`` variables ask to be pushed.

    Raises:
        ConfigError: they ask for an exporter or a protocol that hango does not have, or the package of
            the exporter is not installed.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Pushed(traces=False, metrics=False)
    wanted = Pushed(traces=_is_pushed("TRACES", environ), metrics=_is_pushed("METRICS", environ))
    if wanted.traces or wanted.metrics:
        try:
            importlib.import_module(_PACKAGE)
        except ImportError:
            text = "set, but the exporter is not installed: pip install 'hango[otel]'"
            raise ConfigError((f"{_ENDPOINT}: {text}",)) from None
    return wanted


def _is_pushed(signal: str, environ: Mapping[str, str]) -> bool:
    variable = f"OTEL_{signal}_EXPORTER"
    exporter = environ.get(variable, "").strip().lower()
    if exporter not in {"", "otlp", "none"}:
        raise ConfigError((f"{variable}: must be otlp or none, not {exporter!r}",))
    endpoints = (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    is_asked = exporter == "otlp" or any(environ.get(name, "").strip() for name in endpoints)
    if exporter == "none" or not is_asked:
        return False
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", _PROTOCOL):
        protocol = environ.get(name, "").strip().lower()
        if protocol not in {"", _HTTP}:
            raise ConfigError((f"{name}: must be {_HTTP}, not {protocol!r}",))
    return True


@asynccontextmanager
async def exporting(
    environ: Mapping[str, str], instance: str, *, scraped: bool
) -> AsyncIterator[Scrape | None]:
    """Set up the SDK while the block runs; yields what ``/metrics`` answers, None unless *scraped*.

    What is neither scraped nor pushed is not set up, and costs next to nothing.

    Args:
        environ: the environment, for the ``OTEL_*`` variables.
        instance: names this process, as ``service.instance.id``.
        scraped: whether Prometheus reads the metrics.

    Raises:
        ConfigError: as `pushed`.
    """
    wanted = pushed(environ)
    shutdowns: list[Callable[[], object]] = []
    resource = _resource(environ, instance) if scraped or wanted.metrics or wanted.traces else None
    registry = CollectorRegistry() if scraped else None
    if resource is not None and (registry is not None or wanted.metrics):
        shutdowns.append(_set_up_metrics(resource, registry, push=wanted.metrics))
    if resource is not None and wanted.traces:
        shutdowns.append(_set_up_traces(resource))
    try:
        yield None if registry is None else _scrape(registry)
    finally:
        with trio.move_on_after(SHUTDOWN, shield=True):
            async with trio.open_nursery() as nursery:
                for shutdown in shutdowns:
                    nursery.start_soon(_in_thread, shutdown)


async def _in_thread(shutdown: Callable[[], object]) -> None:
    await trio.to_thread.run_sync(shutdown, abandon_on_cancel=True)


def _resource(environ: Mapping[str, str], instance: str) -> Resource:
    from opentelemetry.sdk.resources import (  # noqa: PLC0415 - only for processes that export
        Resource,
    )

    named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    ours = {"service.version": metadata.version("hango"), "service.instance.id": instance}
    return Resource.create(ours if named else {"service.name": "hango", **ours})


def _set_up_metrics(
    resource: Resource, registry: CollectorRegistry | None, *, push: bool
) -> Callable[[], object]:
    """Set the meter provider of the process; return what shuts it down."""
    from opentelemetry.exporter.prometheus import (  # noqa: PLC0415 - only for processes that export
        PrometheusMetricReader,
    )
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    readers: list[MetricReader] = []
    if registry is not None:
        ProcessCollector(registry=registry)
        readers.append(PrometheusMetricReader(scope_info_enabled=False, registry=registry))
    if push:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
            OTLPMetricExporter,
        )

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    provider = MeterProvider(readers, resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return provider.shutdown


def _set_up_traces(resource: Resource) -> Callable[[], object]:
    """Set the tracer provider of the process; return what shuts it down."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    from hango.telemetry.id_generator import RunIds  # noqa: PLC0415

    provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=RunIds())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _scrape(registry: CollectorRegistry) -> Scrape:
    def scrape(accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    return scrape
