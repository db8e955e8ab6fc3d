"""Spans, metrics and logs: what hango tells of itself, through the OpenTelemetry API."""
