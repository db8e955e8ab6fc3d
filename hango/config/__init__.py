"""Settings: what can be set from the environment, and how it is read.

Nothing below this package reads the environment; `hango.app` hands the values on.
"""

from hango.config.settings import (
    LogFormat,
    LogLevel,
    ProcessRole,
    Settings,
    effective,
    load,
)

__all__ = ["LogFormat", "LogLevel", "ProcessRole", "Settings", "effective", "load"]
