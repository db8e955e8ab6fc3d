"""Metrics through the OpenTelemetry API, and logs."""
