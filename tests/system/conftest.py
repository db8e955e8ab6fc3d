"""What the system tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hango.db.pool import Pool
from hango.testing.plugin import make_seeded_tenant

from support.api import Api, serving
from support.worker_processes import WorkerProcesses


@pytest.fixture
async def api(pool: Pool) -> AsyncIterator[Api]:
    """Serve a database with two tenants."""
    async with serving(pool) as served:
        yield served


@pytest.fixture
async def fleet(database: str, pool: Pool, tmp_path: Path) -> WorkerProcesses:
    """Have a database whose agent is the scripted one, for workers to be started on."""
    return WorkerProcesses(
        await make_seeded_tenant(pool, provider="scripted"), database, tmp_path / "journal"
    )
