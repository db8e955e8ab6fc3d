"""What executes runs: one actor for each busy session, and the loops that keep and recover leases.

Only sessions are actors.  The heartbeat, the sweep and the listener are loops that are started again
when they fail; the supervisor owns them all.  Nothing here calls the web or is called by it: the two
meet in Postgres.
"""

from hango.actors.execution import Build, ExecutionBuilder, PreparedRun
from hango.actors.settings import WorkerSettings
from hango.actors.supervisor import supervise

__all__ = ["Build", "ExecutionBuilder", "PreparedRun", "WorkerSettings", "supervise"]
