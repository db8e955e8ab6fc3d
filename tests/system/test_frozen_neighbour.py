"""A row that somebody sits on, idle in a transaction: the run it belongs to waits, and nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

import attrs
import pytest
import trio

from hango.db.pool import Pool
from hango.domain import Block, ProviderRequest, Run, RunState, ToolResultBlock
from hango.testing import Answer, FakeProvider, call, text, waiting
from hango.testing.plugin import LeaseClock, SeededTenant, sql
from hango.testing.workers import own_pool

from support.locks import row_held, until_waiting
from support.workers import TICKING, BlockingTool, prompt, started_worker

RUNS = 64
TWO_LEASES = int(2 * TICKING.lease_ttl)  # seconds
STEP = 10  # seconds of the clock between two looks at the leases
# The server waits for a lock in real time, while the clock of the leases stands still.
_LOCK_TIMEOUT = "20"  # milliseconds

Table: TypeAlias = Literal["sessions", "runs"]
Write: TypeAlias = Literal["turn", "end"]

_SHORTEST = """
select coalesce(min(extract(epoch from lease_expires_at - $2)), 'infinity')::float8 as seconds
  from runs
 where state = 'running' and id <> $1
"""


@attrs.frozen
class Fate:
    """What becomes of the run whose row is held.

    Attributes:
        epoch: of the claim that ends it.
        calls: to the provider.
        bodies: of its tool.
    """

    epoch: int
    calls: int
    bodies: int


@attrs.frozen
class Script:
    """What all models say: nothing, until told; then that they are done.

    A prompt is the name of a gate, and what makes it unlike any other.
    """

    tool: BlockingTool = attrs.field(factory=BlockingTool)
    early: trio.Event = attrs.field(factory=trio.Event)
    late: trio.Event = attrs.field(factory=trio.Event)

    def answer(self, request: ProviderRequest) -> Answer | Block:
        """Answer *request*."""
        match prompt(request).split()[0]:
            case "turn" if not isinstance(request.messages[-1].content[0], ToolResultBlock):
                return call("hold")
            case "turn":
                return text("done")
            case "late":
                return waiting(self.late, text("done"))
            case _:
                return waiting(self.early, text("done"))


@asynccontextmanager
async def impatient(pool: Pool) -> AsyncIterator[Pool]:
    """Open a pool whose statements do not wait for locks for long."""
    async with own_pool(pool) as own:
        settings = {**own.connector.settings, "lock_timeout": _LOCK_TIMEOUT}
        own.connector = attrs.evolve(own.connector, settings=settings)
        yield own


async def shortest_lease(world: SeededTenant, frozen: Run) -> float:
    """Return for how many seconds the leases of all others hold at least; infinite without any."""
    found = await sql(world.pool, _SHORTEST, frozen.id, world.pool.now())
    return float(found[0]["seconds"])


@pytest.mark.rule(4)
@pytest.mark.parametrize(
    ("table", "write", "fate"),
    [
        # its lease is kept, so it waits for as long as it takes
        ("sessions", "turn", Fate(epoch=1, calls=2, bodies=1)),
        ("sessions", "end", Fate(epoch=1, calls=1, bodies=0)),
        # nobody can renew it or take it back: it stops in time, and is driven again from what is stored
        ("runs", "turn", Fate(epoch=2, calls=2, bodies=2)),
        ("runs", "end", Fate(epoch=2, calls=2, bodies=0)),
    ],
)
async def test_a_client_idle_on_a_row_for_two_leases_harms_no_other_run(
    world: SeededTenant, lease_clock: LeaseClock, table: Table, write: Write, fate: Fate
) -> None:
    """D03: of 64 runs, 63 keep their leases and end in time; the one it sits on ends afterwards."""
    script = Script()
    provider = FakeProvider(script.answer)
    async with (
        impatient(world.pool) as pool,
        started_worker(world, provider, script.tool.tool, settings=TICKING, pool=pool),
    ):
        frozen = await world.run(await world.session(), write)
        others = [await other(world, number) for number in range(1, RUNS)]
        await provider.wait_for_calls(RUNS)
        row_id = frozen.session_id if table == "sessions" else frozen.id
        async with row_held(world.pool, table, row_id):
            script.tool.open.set()
            script.early.set()
            await until_waiting(world.pool)
            for _ in range(0, TWO_LEASES, STEP):
                await lease_clock.advance(STEP)
                left = await shortest_lease(world, frozen)
                assert left >= TICKING.lease_ttl - TICKING.heartbeat_interval
            newcomer = await other(world, RUNS)
            script.late.set()
            await lease_clock.settle()
            done = [await world.reload(run) for run in (*others, newcomer)]
            assert (await world.reload(frozen)).state is RunState.RUNNING
        async with lease_clock.autojump():
            thawed = await world.ended(frozen)
    assert {(run.state, run.claim_epoch, run.reclaims) for run in done} == {(RunState.SUCCEEDED, 1, 0)}
    asked = Counter(prompt(request) for request in provider.requests)
    assert asked.pop(write) == fate.calls
    assert len(asked) == RUNS
    assert set(asked.values()) == {1}
    assert (thawed.state, thawed.claim_epoch) == (RunState.SUCCEEDED, fate.epoch)
    assert script.tool.calls == fate.bodies
    assert provider.complaints == []


async def other(world: SeededTenant, number: int) -> Run:
    """Queue a run, in a session of its own, that ends at once, or only after two leases."""
    return await world.run(await world.session(), f"{'early' if number % 2 else 'late'} {number}")
