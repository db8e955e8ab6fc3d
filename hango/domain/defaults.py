"""Defaults of the settings that more than one room needs.

Each is the default of the ``HANGO_*`` setting of that name, where there is one, of the code that obeys
it, and of in-process runs, which read no settings.
"""

from __future__ import annotations

from typing import Final

RUN_WORKERS: Final = 64
RUN_LEASE_TTL: Final = 90.0  # seconds
RUN_RECLAIM_INTERVAL: Final = 30.0  # seconds
RUN_POLL_INTERVAL: Final = 5.0  # seconds
DRAIN_TIMEOUT: Final = 120.0  # seconds
SESSION_IDLE_TIMEOUT: Final = 300.0  # seconds
RUN_DEADLINE: Final = 900.0  # seconds
MISSING_GRACE = 600.0  # seconds; longer than a rolling deploy takes
TOOL_TIMEOUT: Final = 30.0  # seconds
TOOL_RESULT_LIMIT: Final = 256 * 1024  # bytes of UTF-8
MAX_ITERATIONS: Final = 20  # provider calls in one run
MAX_TOOL_CALLS: Final = 64  # calls that one answer may ask for
MAX_TOKEN_COUNT: Final = 2**53  # a larger number is no count, and no database column holds it
STREAM_RETRIES: Final = 2  # of an answer that broke off; more breaks are a flaw of server or model
