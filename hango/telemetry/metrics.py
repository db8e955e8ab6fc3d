"""The counters, on the meter provider of the process; without one they do nothing.

They may be imported before a provider is set, and count from then on.
"""

from __future__ import annotations

from opentelemetry import metrics

from hango.telemetry import names

_meter = metrics.get_meter("hango")

run_claims = _meter.create_counter(
    names.RUN_CLAIMS, "{claim}", "Claims of a due run, by outcome: won, or lost to another process."
)
run_reclaimed = _meter.create_counter(
    names.RUN_RECLAIMED, "{run}", "Runs whose lease had lapsed, put back into the queue."
)
fence_rejected = _meter.create_counter(
    names.FENCE_REJECTED, "{write}", "Writes refused because the process no longer held the claim."
)
tool_errors = _meter.create_counter(
    names.TOOL_ERRORS, "{call}", "Tool calls that failed, by kind of error."
)
