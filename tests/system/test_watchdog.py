"""A process whose event loop stands still ends by itself, and what held it up is counted."""

from __future__ import annotations

import pytest
import trio

from hango.db.pool import open_pool
from hango.domain import ErrorCode, RunState
from hango.testing.plugin import make_seeded_tenant

from support.processes import started

PLUGIN = "support.freezing_plugin"
SETTINGS = {
    "HANGO_ROLE": "worker",
    "HANGO_PLUGINS": PLUGIN,
    "HANGO_RUN_LEASE_TTL": "4s",
    "HANGO_RUN_RECLAIM_INTERVAL": "1s",
    "HANGO_RUN_POLL_INTERVAL": "1s",
    "HANGO_RUN_MAX_RECLAIMS": "4",
    "PYTHONPATH": "tests",
}


@pytest.mark.rule(19)
@pytest.mark.rule(27)
async def test_a_run_that_freezes_its_process_ends_and_the_others_get_on(database: str) -> None:
    """R-F2: nothing is held for longer than half a lease, and the run ends as crash_loop."""
    async with open_pool(database) as pool, trio.open_nursery() as processes:
        world = await make_seeded_tenant(pool, provider="freezing")
        guilty = await world.run(await world.session(), "guilty hold_interpreter")
        others = [await world.run(await world.session(), "other be_quick") for _ in range(4)]
        settings = {"HANGO_DATABASE_URL": database, **SETTINGS}
        stacks: list[str] = []
        for _ in range(2):
            processes.start_soon(_keep_running, settings, stacks)
        with trio.fail_after(120):
            ended = [await world.ended(run) for run in (guilty, *others)]
        processes.cancel_scope.cancel()
    assert [run.state for run in ended] == [RunState.FAILED] + 4 * [RunState.SUCCEEDED]
    assert ended[0].error is not None
    assert ended[0].error.code is ErrorCode.CRASH_LOOP
    assert any("in hold_interpreter" in line for line in stacks)


async def test_a_stall_that_passes_is_reported_with_the_tool_that_ran(database: str) -> None:
    """R-F2, W-M8: long before the process would end, the log names the tool and the seconds."""
    async with open_pool(database) as pool:
        world = await make_seeded_tenant(pool, provider="freezing")
        await world.run(await world.session(), "guilty hold_loop_briefly")
        settings = {"HANGO_DATABASE_URL": database, **SETTINGS, "HANGO_RUN_LEASE_TTL": "60s"}
        async with started("serve", **settings) as worker:
            line = await worker.line("the event loop is blocked")
            assert "tool hold_loop_briefly" in line
            assert "freezing_plugin.hold_loop_briefly" in line
            assert "tool hold_loop_briefly" in await worker.line("the event loop was blocked for")


async def _keep_running(settings: dict[str, str], stacks: list[str]) -> None:
    """Start a worker, and another one whenever it ends, as a supervisor of processes does."""
    while True:
        async with started("serve", **settings) as worker:
            assert await worker.ended() == 1
            stacks += worker.lines
