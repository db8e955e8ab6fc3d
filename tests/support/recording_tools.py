"""A shop whose tools must not just run twice, and the things that happen to a process using them.

Its one rule: whether a body ran is known from the shop, never from what the model was told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import MockClock

from hango.db.pool import Pool
from hango.domain import Effects, Run, RunState, ToolContext, ToolResultBlock
from hango.testing import Answer, FakeProvider, answer, call, text
from hango.testing.plugin import SeededTenant, sql
from hango.tools import Tool, tool

from support.workers import NEVER, TICKING, HandClock, Worker, database_away, started_worker, until

NO_TIMEOUTS = attrs.evolve(TICKING, run_deadline=NEVER, tool_timeout=NEVER)
UNKNOWN_RESULT = "was started before and cut short, so it may have taken effect; it was not run again"


@attrs.define
class RecordingTools:
    """A tool of each kind of effects, named after it, that writes down when its body runs.

    A body whose call says ``wait`` waits until the shop is open.  It returns how often it ran for this
    very call.

    Attributes:
        ran: name and idempotency key, each time a body began.
    """

    ran: list[tuple[str, str]] = attrs.field(factory=list)
    open: trio.Event = attrs.field(factory=trio.Event)
    _entered: trio.Event = attrs.field(factory=trio.Event)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools."""
        return [self._tool(effects) for effects in Effects]

    def _tool(self, effects: Effects) -> Tool:
        async def body(context: ToolContext, wait: bool = False) -> str:  # noqa: FBT001, FBT002 - given by name
            once = (effects.value, context.idempotency_key)
            self.ran.append(once)
            self._entered.set()
            if wait:
                await self.open.wait()
            return f"{effects}, time {self.ran.count(once)}"

        return tool(effects=effects, name=effects.value)(body)

    def keys(self, name: str) -> list[str]:
        """Return the keys its body got, oldest first."""
        return [key for ran, key in self.ran if ran == name]

    async def until_ran(self, count: int) -> None:
        """Wait until that many bodies have begun."""
        while len(self.ran) < count:
            await self._entered.wait()
            self._entered = trio.Event()


def asks(*calls: str) -> Answer:
    """Ask for tools by name; one with a ``…`` after its name waits."""
    return answer(*(call(name.removesuffix("…"), {"wait": name.endswith("…")}) for name in calls))


async def first_results(world: SeededTenant, run: Run) -> list[ToolResultBlock]:
    """Return what the model was told of the calls of the first turn, in request order."""
    messages = await world.sessions.messages(world.scope(), run.session_id)
    (results,) = [m for m in messages if (m.run_id, m.turn, m.role) == (run.id, 1, "user")]
    return [block for block in results.content if isinstance(block, ToolResultBlock)]


async def ledger_rows(world: SeededTenant) -> list[tuple[str, str]]:
    """Return tool and state of all that is in the ledger, in the order of the calls."""
    rows = await sql(world.pool, "select tool, state from tool_effects order by turn, ordinal")
    return [(row["tool"], row["state"]) for row in rows]


# --- two processes under one clock ----------------------------------------------------------


@attrs.frozen
class TwoWorkers:
    """A database, and two processes' ways to it.

    Attributes:
        theirs: the pool of the process that something happens to.
    """

    world: SeededTenant
    theirs: Pool

    async def turn(self, clock: MockClock, seconds: float) -> None:
        """Let *seconds* pass, and see each through, on either way."""
        for pool in (self.theirs, self.world.pool) * 2:
            await HandClock(clock, pool).settle()
        for _ in range(round(seconds)):
            clock.jump(1)
            for pool in (self.theirs, self.world.pool) * 2:
                await HandClock(clock, pool).settle()

    async def cut_off(self, clock: MockClock, seconds: float) -> None:
        """Take the database from the process for so long."""
        async with database_away(self.theirs):
            await self.turn(clock, seconds)

    async def crash(self, clock: MockClock, worker: Worker) -> None:
        """End the process without a last word to anybody, as a kill does."""
        async with database_away(self.theirs):
            worker.scope.cancel()
            await self.turn(clock, 10)
            await worker.ended.wait()


@asynccontextmanager
async def interrupted(
    street: TwoWorkers, clock: MockClock, shop: RecordingTools, *calls: str
) -> AsyncIterator[tuple[Worker, Run]]:
    """Have a run in a process of its own, in the middle of *calls*: those that wait are waiting."""
    provider = FakeProvider([asks(*calls), text("done")])
    process = started_worker(
        street.world, provider, *shop.tools, settings=NO_TIMEOUTS, pool=street.theirs
    )
    async with process as worker:
        run = await street.world.run(await street.world.session())
        await shop.until_ran(len(calls))
        await street.turn(clock, 0)
        yield worker, run


async def replayed(street: TwoWorkers, clock: MockClock, shop: RecordingTools, run: Run) -> None:
    """Let the lease lapse, and the turn be driven again, by another process too, to the run's end."""
    shop.open.set()
    provider = FakeProvider([text("done")])
    async with started_worker(street.world, provider, *shop.tools, settings=NO_TIMEOUTS):
        await street.turn(clock, TICKING.lease_ttl + TICKING.reclaim_interval)
        (done,) = await until(street.world, [run])
    assert (done.state, done.claim_epoch) == (RunState.SUCCEEDED, 2)
