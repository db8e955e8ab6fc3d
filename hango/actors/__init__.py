"""The actors: what executes runs, and keeps, moves and hands over their leases.

Siblings meet in Postgres: nothing here is called by the web, and nothing here calls it.
"""

from hango.actors.execution import ExecutionBuilder, Prepare, PreparedRun
from hango.actors.settings import WorkerSettings
from hango.actors.supervisor import supervise

__all__ = ["ExecutionBuilder", "Prepare", "PreparedRun", "WorkerSettings", "supervise"]
