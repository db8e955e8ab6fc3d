"""What `deploy/observability` asks of Prometheus: only series that hango has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Counter, Histogram
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from hango.telemetry import metrics

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
SERIES = re.compile(r"\b(?:hango|gen_ai|http_server)_\w+\b")


def series() -> set[str]:
    """Return the names of all series of hango's instruments, as Prometheus gets them."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(scope_info_enabled=False, registry=registry)
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("hango")
    found: list[Sample] = []
    for instrument in (*vars(metrics).values(), *metrics.token_counters.values()):
        # before and after a provider is set
        name = str(getattr(instrument, "_name", "") or getattr(instrument, "name", ""))
        unit = str(getattr(instrument, "_unit", "") or getattr(instrument, "unit", ""))
        if isinstance(instrument, Counter):
            meter.create_counter(name, unit).add(1)
        elif isinstance(instrument, Histogram):
            meter.create_histogram(name, unit).record(1)
        elif hasattr(instrument, "set"):
            meter.create_gauge(name, unit).set(1)
    for family in registry.collect():
        found += family.samples
    return {sample.name for sample in found}


@pytest.mark.parametrize("file", ["alerts.yml", "dashboard.json"])
def test_every_series_that_is_asked_for_is_there(file: str) -> None:
    """A renamed metric would leave a panel empty and an alert silent."""
    text = (FOLDER / file).read_text("utf-8")
    if file.endswith("json"):
        panels = json.loads(text)["panels"]
        queries = [target["expr"] for panel in panels for target in panel["targets"]]
        assert len({panel["id"] for panel in panels}) == len(panels)
    else:
        queries = re.findall(r"expr: (.+)", text)
        assert len(queries) == text.count("- alert:")
    labels = re.compile(r"(?:by|without) \([^)]*\)|\{[^}]*\}")
    asked = {name for query in queries for name in SERIES.findall(labels.sub("", query))}
    assert asked
    assert asked <= series()
