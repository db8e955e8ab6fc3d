"""Settings of the unit tests: a property is judged by what is found, not by how busy the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("hango", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hango")
