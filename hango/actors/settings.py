"""What a process that executes runs can be told."""

from __future__ import annotations

import attrs


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
        tool_timeout: seconds one tool call may take, unless the agent has a limit of its own.
        max_iterations: provider calls in one run, unless the agent has a limit of its own.
        max_tool_calls: calls one answer may ask for.
        tool_result_limit: bytes of UTF-8 one result may have.
    """

    workers: int = 64
    lease_ttl: float = 90.0
    heartbeat_interval: float = 30.0
    reclaim_interval: float = 30.0
    poll_interval: float = 5.0
    drain_timeout: float = 120.0
    session_idle_timeout: float = 300.0
    run_deadline: float = 900.0
    tool_timeout: float = 30.0
    max_iterations: int = 20
    max_tool_calls: int = 64
    tool_result_limit: int = 256 * 1024
