"""What a run costs the database, statement by statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import pytest
import trio
import trio.testing

from hango.db.pool import Pool
from hango.db.queries import Query, Row
from hango.db.units import Work
from hango.domain import Block, RunState
from hango.testing import FakeProvider, call, text
from hango.testing.plugin import SeededTenant

from support.workers import BlockingTool, started_worker, until

T = TypeVar("T")
TOOL_TURNS = 4
ANSWERS: list[Block] = [*(call("hold") for _ in range(TOOL_TURNS)), text("done")]


class Meter:
    """Counts what a pool is asked to do, by the names of the statements."""

    def __init__(self, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._rows, self._write, self._unit = pool.rows, pool.write, pool.unit
        for name in ("rows", "write", "unit"):
            monkeypatch.setattr(Pool, name, getattr(self, name))

    async def rows(self, query: Query, **values: object) -> Sequence[Row]:
        """Count a read."""
        self.counts[query.name] += 1
        return await self._rows(query, **values)

    async def write(self, query: Query, *, deadline: float = 10.0, **values: object) -> Sequence[Row]:
        """Count a write."""
        self.counts[query.name] += 1
        return await self._write(query, deadline=deadline, **values)

    async def unit(self, work: Work[T], *, deadline: float = 10.0) -> T:
        """Count a transaction; writes of one statement go this way, too, and are counted already."""
        if not work.__qualname__.startswith("fetch"):
            self.counts["transaction"] += 1
        return await self._unit(work, deadline=deadline)


@pytest.mark.rule(7)
async def test_a_run_costs_the_database_what_it_must(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write to create, a claim, two reads, two writes a tool turn, and one for the end.

    The second run costs no more for the history it follows: the actor keeps its transcript, and
    reads only what its own last write stored.
    """
    gate = BlockingTool()
    gate.open.set()
    session = await world.session()
    async with started_worker(world, FakeProvider([*ANSWERS, *ANSWERS]), gate.tool):
        await trio.testing.wait_all_tasks_blocked(0.05)  # its looks and sweep at the start are done
        meter = Meter(world.pool, monkeypatch)
        for _ in range(2):
            run = await world.run(session)
            ended = (await until(world, [run]))[0]
            await trio.testing.wait_all_tasks_blocked(0.05)
            del meter.counts["get_run"]  # the test's own
            assert (ended.state, ended.iterations) == (RunState.SUCCEEDED, TOOL_TURNS + 1)
            assert meter.counts.pop("insert_run") == 1
            assert meter.counts.pop("claim_next_run") == 1
            assert meter.counts.pop("append_messages") == TOOL_TURNS
            assert meter.counts.pop("end_turn") == TOOL_TURNS
            assert meter.counts.pop("settle_run") == 1
            assert meter.counts.keys() <= {"load_execution", "read_transcript"}
            assert meter.counts.total() <= 2
            meter.counts.clear()


@pytest.mark.rule(6)
async def test_the_runs_of_a_line_follow_each_other_without_a_poll(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were there when the first one was claimed, and those that came meanwhile."""
    gate, session = BlockingTool(), await world.session()
    runs = [await world.run(session), await world.run(session)]
    async with started_worker(world, FakeProvider(ANSWERS * 4), gate.tool):
        await gate.entered.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)  # its poll and sweep at the start are done
        meter = Meter(world.pool, monkeypatch)
        runs += [await world.run(session), await world.run(session)]
        gate.open.set()
        ended = await until(world, runs)
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert {run.state for run in ended} == {RunState.SUCCEEDED}
    assert meter.counts["claim_next_run"] == 3
    assert meter.counts["list_claimable_heads"] == 0
