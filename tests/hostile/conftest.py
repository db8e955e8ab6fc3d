"""What the hostile tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest

from hango.db.pool import Pool

from support.api import SETTINGS, Api, serving


@pytest.fixture
async def api(pool: Pool) -> AsyncIterator[Api]:
    """Serve a database with two tenants whose sessions have room for every run of a table."""
    async with serving(pool, attrs.evolve(SETTINGS, max_live_runs=1000)) as served:
        yield served
