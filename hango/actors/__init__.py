"""The actors: what executes runs, and keeps, moves and hands over their leases.

Siblings meet in Postgres: nothing here is called by the web, and nothing here calls it.
"""

from hango.actors.execution import Prepare, Prepared, Workshop
from hango.actors.settings import WorkerSettings
from hango.actors.supervisor import supervise

__all__ = ["Prepare", "Prepared", "WorkerSettings", "Workshop", "supervise"]
