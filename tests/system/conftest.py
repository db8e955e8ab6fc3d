"""What the system tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hango.store.pool import Pool

from support.api import Api, serving


@pytest.fixture
async def api(pool: Pool) -> AsyncIterator[Api]:
    """Serve a database with two tenants."""
    async with serving(pool) as served:
        yield served
