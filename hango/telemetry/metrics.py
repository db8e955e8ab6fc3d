"""The counters of the rules, on whatever meter provider the process has set (none: no cost).

Made from the API's proxy, so they may be imported before a provider is set and count from then on.
"""

from __future__ import annotations

from opentelemetry import metrics

from hango.telemetry import names

_meter = metrics.get_meter("hango")

run_claims = _meter.create_counter(
    names.RUN_CLAIMS, "{claim}", "Claims of a due run: won, or lost to another claimer."
)
run_reclaimed = _meter.create_counter(
    names.RUN_RECLAIMED, "{run}", "Runs whose lease had lapsed, taken back by the sweep."
)
fence_rejected = _meter.create_counter(
    names.FENCE_REJECTED, "{write}", "Writes of an executor that no longer held its claim."
)
tool_errors = _meter.create_counter(
    names.TOOL_ERRORS, "{call}", "Tool calls that came to an error, by kind."
)
