"""What is stored in Postgres: one class for each kind of thing, and `Stores`, which has them all.

The statements are in ``sql/queries``, one file for each kind; the classes give them types.
"""

from __future__ import annotations

import attrs

from hango.db.pool import Pool
from hango.store.accounts import Accounts
from hango.store.agents import Agents
from hango.store.audit import Audit
from hango.store.bounds import UNBOUNDED, StoreBounds
from hango.store.runs import Runs
from hango.store.sessions import Sessions

__all__ = ["Stores"]


@attrs.frozen
class Stores:
    """All stores of one database, and the pool they share."""

    accounts: Accounts
    agents: Agents
    sessions: Sessions
    runs: Runs
    audit: Audit
    pool: Pool

    @classmethod
    def on(cls, pool: Pool, bounds: StoreBounds = UNBOUNDED) -> Stores:
        """Return the stores of the database that *pool* is connected to."""
        runs = Runs(pool, bounds)
        return cls(Accounts(pool), Agents(pool), Sessions(pool), runs, Audit(pool), pool)
