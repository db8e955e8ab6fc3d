"""The SDK's generator of ids, which gives a run's root those that are stored on the run.

Imports the SDK, so only what sets it up may import this.
"""

from __future__ import annotations

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from hango.telemetry.run_ids import given_ids


class RunIds(RandomIdGenerator):
    """Random ids, but for spans that are started in `root_ids`."""

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        ids = given_ids()
        return super().generate_trace_id() if ids is None else ids[0]

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        ids = given_ids()
        return super().generate_span_id() if ids is None else ids[1]
