"""Real workers of one database, started, signalled and killed by a test.

Its one rule: what they did is known from the journal, a line a happening, which outlives them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import trio

from hango.domain import Run, RunState
from hango.testing.plugin import SeededTenant, sql

from support.processes import Running, started

_LONGEST = 60.0  # seconds


@attrs.frozen
class WorkerProcesses:
    """Workers of one database, and the journal of what happened in them."""

    world: SeededTenant
    database: str
    journal: Path

    def worker(self, **settings: str) -> AbstractAsyncContextManager[Running]:
        """Start a process that executes runs."""
        usual: Mapping[str, str] = {
            "HANGO_DATABASE_URL": self.database,
            "HANGO_PLUGINS": "support.journal_plugin",
            "HANGO_ROLE": "worker",
            "HANGO_RUN_LEASE_TTL": "2s",
            "HANGO_RUN_RECLAIM_INTERVAL": "500ms",
            "DURABLE_JOURNAL": str(self.journal),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        return started("serve", **{**usual, **settings})

    def happened(self) -> Counter[str]:
        """How often each thing happened."""
        return Counter(self.journal.read_text().splitlines() if self.journal.exists() else ())

    def let_go(self) -> None:
        """Let `hold` return from now on."""
        self.journal.with_suffix(".go").touch()

    async def until(self, runs: Sequence[Run], *states: RunState) -> list[Run]:
        """Wait, by the doorbell, until every one of *runs* is in one of *states*."""
        with trio.fail_after(_LONGEST):
            async with self.world.pool.listen() as rings:
                while True:
                    now = {run.id: run for run in await self._all()}
                    if all(now[run.id].state in states for run in runs):
                        return [now[run.id] for run in runs]
                    await anext(rings)

    async def until_recorded(self) -> None:
        """Wait until the ledger holds the result of a call."""
        with trio.fail_after(_LONGEST):
            while not await sql(self.world.pool, "select from tool_effects where state = 'finished'"):
                await trio.lowlevel.checkpoint()

    async def _all(self) -> list[Run]:
        found: list[Run] = []
        before = None
        while page := await self.world.runs.list(self.world.scope(), before=before, limit=200):
            found += page
            before = page[-1].id
        return found
