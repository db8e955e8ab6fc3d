"""A run that kills whoever executes it: it waits longer each time, and ends, and the others get on."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from uuid import UUID

import attrs
import pytest
import trio

from hango.domain import Effects, ErrorCode, Run, RunState, ToolResultBlock
from hango.store.invariants import check
from hango.testing import FakeProvider
from hango.testing.plugin import LeaseClock, SeededTenant
from hango.testing.workers import Worker
from hango.tools import Tool, tool

from support.journal_plugin import asked, said
from support.worker_processes import WorkerProcesses
from support.workers import TICKING

_LINGERS = 1.0  # seconds from the call to the death of the process
_NAP = 0.5  # seconds that a harmless call takes
_WORK = 10.0  # seconds that a long one takes
# Seconds from the call until the run is taken back: the next process sweeps at its start, which is when
# the last one dies, and at every interval from then on; by the third the lease has lapsed.
_UNTIL_SWEPT = _LINGERS + 3 * TICKING.reclaim_interval


@attrs.define
class Deathbed:
    """Processes that die one after the other, in the call of a tool named ``die``.

    Attributes:
        lingers: seconds from that call to the death.
        processes: that have been started; what is left of a dead one takes seconds to give up.
        entered: set when the tool has been called in the process that lives.
    """

    world: SeededTenant
    clock: LeaseClock
    processes: AsyncExitStack
    lingers: float = _LINGERS
    provider: FakeProvider = attrs.field(factory=lambda: FakeProvider(lambda it: said(*asked(it))))
    entered: trio.Event = attrs.field(factory=trio.Event)
    naps: int = 0

    @property
    def tools(self) -> list[Tool]:
        """The tool that kills, and two that harm nobody."""

        async def die() -> str:
            """Die; safe to run again, if there were anybody left to do so."""
            self.entered.set()
            await trio.sleep_forever()

        async def nap() -> str:
            """Take a nap; safe to run again."""
            self.naps += 1
            await trio.sleep(_NAP)
            return "rested"

        async def work() -> str:
            """Work for long; safe to run again."""
            await trio.sleep(_WORK)
            return "worked"

        return [tool(effects=Effects.READ_ONLY)(each) for each in (die, nap, work)]

    async def start(self) -> Worker:
        """Start a process."""
        worker = self.world.worker(self.provider, *self.tools, settings=TICKING)
        return await self.processes.enter_async_context(worker)

    async def live(self) -> tuple[float, Run]:
        """Live one life; return when the tool was called, and a run that was in mid-call at the end."""
        self.entered = trio.Event()
        worker = await self.start()
        async with self.clock.autojump():
            await self.entered.wait()
        called_at = trio.current_time()
        await self.clock.advance(self.lingers - _NAP / 2)
        beside = await self.world.run(await self.world.session(), "beside nap")
        await self.clock.advance(_NAP / 2)
        await worker.kill()
        return called_at, beside

    async def ended(self, *runs: Run) -> list[Run]:
        """Wait until all of these have ended, in a process that lives."""
        await self.start()
        async with self.clock.autojump():
            return [await self.world.ended(run) for run in runs]


@asynccontextmanager
async def deathbed(
    world: SeededTenant, clock: LeaseClock, lingers: float = _LINGERS
) -> AsyncIterator[Deathbed]:
    """Have processes that die one after the other; the last one need not."""
    async with AsyncExitStack() as processes:
        yield Deathbed(world, clock, processes, lingers)


async def repaired(world: SeededTenant, session_id: UUID) -> list[ToolResultBlock]:
    """Return the results that were made up for calls that never came to one."""
    messages = await world.sessions.messages(world.scope(), session_id, limit=200)
    return [
        block
        for message in messages
        for block in message.content
        if message.synthetic and isinstance(block, ToolResultBlock)
    ]


@pytest.mark.rule(2)
@pytest.mark.rule(5)
@pytest.mark.rule(8)
async def test_it_waits_longer_each_time_and_ends_as_a_crash_loop(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """D08: taken back at once, then after 1, 3, 9 … seconds at most; the tenth death is the last.

    Whoever is beside it loses a turn and gets on; whoever is behind it in its session comes after it.
    """
    session = await world.session()
    poison, behind = [await world.run(session, prompt) for prompt in ("poison die", "behind nap")]
    async with deathbed(world, lease_clock) as bed:
        lives = [await bed.live() for _ in range(10)]
        failed, *others = await bed.ended(poison, behind, *(run for _, run in lives))
    assert (failed.state, failed.claim_epoch, failed.reclaims) == (RunState.FAILED, 10, 10)
    assert failed.error is not None
    assert failed.error.code is ErrorCode.CRASH_LOOP
    assert {run.state for run in others} == {RunState.SUCCEEDED}
    assert [run.claim_epoch for run in others] == [1] + [2] * 10
    assert bed.naps == 1 + 2 * 10
    first, *later = [after - before - _UNTIL_SWEPT for (before, _), (after, _) in pairwise(lives)]
    assert first == 0
    for times, pause in enumerate(later):
        longest = min(3**times, 300)
        assert 0.25 * longest <= pause <= longest + 0.1
    asked_for = Counter(asked(request)[0][0] for request in bed.provider.requests)
    assert asked_for == {"poison": 1, "behind": 2, "beside": 2 * 10}, "a paid answer was bought again"
    assert [result.is_error for result in await repaired(world, session.id)] == [True]
    assert bed.provider.complaints == []


@pytest.mark.rule(5)
async def test_who_shares_its_process_from_the_beginning_is_not_taken_for_another(
    world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """D08: claimed together and lost together, runs in a long turn part from it, and get on."""
    poison = await world.run(await world.session(), "poison die")
    beside = [await world.run(await world.session(), "beside work") for _ in range(20)]
    async with deathbed(world, lease_clock, lingers=_WORK / 2) as bed:
        lives = [await bed.live() for _ in range(10)]
        failed, *others = await bed.ended(poison, *beside, *(run for _, run in lives))
    assert failed.error is not None
    assert failed.error.code is ErrorCode.CRASH_LOOP
    assert {run.state for run in others} == {RunState.SUCCEEDED}


@pytest.mark.rule(5)
@pytest.mark.rule(11)
@pytest.mark.parametrize("backed_off", [True, False])
async def test_it_can_be_cancelled_meanwhile(
    world: SeededTenant, lease_clock: LeaseClock, *, backed_off: bool
) -> None:
    """D08, D09: at once while it waits, at the sweep while its owner is dead; nobody calls it again."""
    session = await world.session()
    poison = await world.run(session, "poison die")
    async with deathbed(world, lease_clock) as bed:
        lives = [await bed.live() for _ in range(2)]
        if backed_off:
            await lease_clock.advance(TICKING.lease_ttl)
            assert await world.queue().sweep()
            assert (await world.queue().poll(1)).next_due_in is not None
        told = await world.runs.cancel(world.scope(), poison.id)
        assert told.state is (RunState.CANCELLED if backed_off else RunState.RUNNING)
        after = await world.run(session, "after nap")
        ended, *others = await bed.ended(poison, after, *(run for _, run in lives))
    assert (ended.state, ended.error, ended.claim_epoch) == (RunState.CANCELLED, None, 2)
    assert {run.state for run in others} == {RunState.SUCCEEDED}
    assert [result.is_error for result in await repaired(world, session.id)] == [True]
    assert bed.provider.complaints == []


async def kept_alive(fleet: WorkerProcesses, healthy: list[Run], codes: list[int]) -> None:
    """Start a worker, and another one whenever it has died, as an operator's service manager does.

    Each finds three harmless runs to execute, and gets as many more when it is about to die.
    """

    async def queue() -> None:
        for _ in range(3):
            name = f"healthy-{len(healthy)}"
            healthy.append(await fleet.world.run(await fleet.world.session(), f"{name} note note"))

    limits = {"HANGO_RUN_MAX_RECLAIMS": "3", "HANGO_RUN_RECLAIM_INTERVAL": "250ms"}
    while True:
        await queue()
        async with fleet.worker(**limits) as worker:
            await worker.line("dying")
            await queue()
            codes.append(await worker.ended())


@pytest.mark.rule(5)
async def test_processes_that_it_kills_are_replaced_and_the_others_get_on(
    fleet: WorkerProcesses,
) -> None:
    """D08: kill -9 from within, each time; the limit ends it, and its session goes on."""
    session = await fleet.world.session()
    poison, behind = [await fleet.world.run(session, it) for it in ("poison die", "behind note")]
    healthy: list[Run] = []
    codes: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept_alive, fleet, healthy, codes)
        (failed,) = await fleet.until([poison], RunState.FAILED)
        ended = await fleet.until([behind, *healthy], RunState.SUCCEEDED)
        nursery.cancel_scope.cancel()
    assert failed.error is not None
    assert (failed.error.code, failed.claim_epoch) == (ErrorCode.CRASH_LOOP, 3)
    assert codes == [-signal.SIGKILL] * 3
    happened = fleet.happened()
    assert (happened["provider poison 1"], happened[f"die {poison.id} 1"]) == (1, 3)
    assert len(ended) == 1 + 3 * (2 * 3 + 1)
    for run in ended[1:]:
        assert all(1 <= happened[f"note {run.id} {turn}"] <= run.claim_epoch for turn in (1, 2))
    assert await repaired(fleet.world, session.id)
    assert list(await check(fleet.world.pool)) == []
