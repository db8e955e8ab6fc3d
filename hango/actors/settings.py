"""What a process that executes runs can be told."""

from __future__ import annotations

import attrs

from hango.domain import defaults


@attrs.frozen(kw_only=True)
class WorkerSettings:
    """The bounds and rhythms of one process; the defaults are those of the ``HANGO_*`` settings.

    Attributes:
        workers: runs executed at once.
        lease_ttl: seconds a claim holds without being renewed; the queue must have been given the same.
        heartbeat_interval: seconds between renewals; a third of the lease, so that two may fail.
        reclaim_interval: seconds between sweeps.
        poll_interval: seconds between looks at the table when no doorbell rings.
        drain_timeout: seconds that running turns have to finish once the process drains.
        session_idle_timeout: seconds after which a session's actor, and the transcript it keeps, ends.
        run_deadline: seconds one execution may take, unless the agent has a limit of its own.
        missing_grace: seconds a run waits for a process that has its provider, tools and so on.
        tool_timeout: seconds one tool call may take, unless the agent has a limit of its own.
        max_iterations: provider calls in one run, unless the agent has a limit of its own.
        max_tool_calls: calls one answer may ask for.
        tool_result_limit: bytes of UTF-8 one result may have.
    """

    workers: int = defaults.RUN_WORKERS
    lease_ttl: float = defaults.RUN_LEASE_TTL
    heartbeat_interval: float = defaults.RUN_LEASE_TTL / 3
    reclaim_interval: float = defaults.RUN_RECLAIM_INTERVAL
    poll_interval: float = defaults.RUN_POLL_INTERVAL
    drain_timeout: float = defaults.DRAIN_TIMEOUT
    session_idle_timeout: float = defaults.SESSION_IDLE_TIMEOUT
    run_deadline: float = defaults.RUN_DEADLINE
    missing_grace: float = defaults.MISSING_GRACE
    tool_timeout: float = defaults.TOOL_TIMEOUT
    max_iterations: int = defaults.MAX_ITERATIONS
    max_tool_calls: int = defaults.MAX_TOOL_CALLS
    tool_result_limit: int = defaults.TOOL_RESULT_LIMIT
