"""Settings, read from environment variables.

Only this package and the command line read the environment; `hango.app` passes the values on.
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
