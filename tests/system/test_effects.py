"""Tools that must not just run twice, in runs that are crashed, cut off, drained or cancelled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.db.pool import Pool, open_pool
from hango.db.queries import Query, Row
from hango.domain import Effects, RunState, ToolContext
from hango.errors import StoreUnavailable
from hango.testing import FakeProvider, answer, call, text
from hango.testing.plugin import SeededTenant, make_seeded_tenant
from hango.tools import tool

from support.recording_tools import (
    NO_TIMEOUTS,
    UNKNOWN_RESULT,
    RecordingTools,
    TwoWorkers,
    asks,
    first_results,
    interrupted,
    ledger_rows,
    replayed,
)
from support.workers import SETTINGS, TICKING, database_away, mock_now, started_worker, until

pytestmark = pytest.mark.rule(9)

# --- two processes under one clock ----------------------------------------------------------


@pytest.fixture
def clock() -> MockClock:
    """Have a clock that stands still until it is turned."""
    return MockClock()


@pytest.fixture
async def street(database: str) -> AsyncIterator[TwoWorkers]:
    """Have a database whose leases follow the clock."""
    async with open_pool(database, now=mock_now) as pool, open_pool(database, now=mock_now) as theirs:
        yield TwoWorkers(await make_seeded_tenant(pool), theirs)


@pytest.mark.rule(8)
@pytest.mark.parametrize(
    ("name", "times", "left"),
    [
        ("read_only", 2, []),
        ("idempotent", 2, []),
        ("keyed", 2, [("keyed", "started")]),
        ("unsafe", 1, [("unsafe", "started")]),
    ],
)
async def test_a_call_cut_short_by_a_crash_runs_again_as_its_effects_allow(
    street: TwoWorkers, clock: MockClock, name: str, times: int, left: list[tuple[str, str]]
) -> None:
    """Between its start and its result: harmless ones again, keyed with the same key, unsafe not."""
    shop = RecordingTools()
    async with interrupted(street, clock, shop, f"{name}…") as (worker, run):
        await street.crash(clock, worker)
    assert await ledger_rows(street.world) == left
    await replayed(street, clock, shop, run)
    assert shop.keys(name) == [f"{run.id}:1:0"] * times
    (result,) = await first_results(street.world, run)
    expected = (f"{name}, time 2", False) if times == 2 else (f"{name} {UNKNOWN_RESULT}", True)
    assert (result.content, result.is_error) == expected


@pytest.mark.rule(8)
async def test_each_call_is_driven_again_by_what_is_recorded_of_it(
    street: TwoWorkers, clock: MockClock
) -> None:
    """Of calls side by side, some had come to a result when the process crashed, and some had not."""
    shop = RecordingTools()
    calls = ["unsafe", "unsafe…", "keyed", "keyed…", "idempotent", "read_only…", "unsafe…", "unsafe"]
    async with interrupted(street, clock, shop, *calls) as (worker, run):
        await street.crash(clock, worker)
    assert len(shop.ran) == len(calls)
    await replayed(street, clock, shop, run)
    again = Counter(key.rpartition(":")[2] for _, key in shop.ran)
    assert again == {"0": 1, "1": 1, "2": 1, "3": 2, "4": 2, "5": 2, "6": 1, "7": 1}
    assert [result.content for result in await first_results(street.world, run)] == [
        "unsafe, time 1",
        f"unsafe {UNKNOWN_RESULT}",
        "keyed, time 1",
        "keyed, time 2",
        "idempotent, time 2",
        "read_only, time 2",
        f"unsafe {UNKNOWN_RESULT}",
        "unsafe, time 1",
    ]
    assert Counter(state for _, state in await ledger_rows(street.world)) == {
        "finished": 4,
        "started": 2,
    }


@pytest.mark.rule(4)
async def test_an_unsafe_call_of_a_process_cut_off_is_started_by_nobody(
    street: TwoWorkers, clock: MockClock
) -> None:
    """It stops itself before its lease ends; whoever takes the run does not start the call again."""
    shop = RecordingTools()
    async with interrupted(street, clock, shop, "unsafe…", "keyed…") as (_, run):
        await street.cut_off(clock, TICKING.lease_ttl * 0.9 + 1)
        await replayed(street, clock, shop, run)
    assert shop.keys("unsafe") == [f"{run.id}:1:0"]
    assert shop.keys("keyed") == [f"{run.id}:1:1"] * 2
    assert [result.is_error for result in await first_results(street.world, run)] == [True, False]


async def test_a_result_that_could_not_be_recorded_is_not_known(
    street: TwoWorkers, clock: MockClock
) -> None:
    """The body came to its end while the database was away for longer than the lease."""
    shop = RecordingTools()
    async with interrupted(street, clock, shop, "unsafe…") as (_, run):
        async with database_away(street.theirs):
            shop.open.set()
            await street.turn(clock, TICKING.lease_ttl * 0.9 + 1)
        await replayed(street, clock, shop, run)
    assert len(shop.ran) == 1
    assert [result.content for result in await first_results(street.world, run)] == [
        f"unsafe {UNKNOWN_RESULT}"
    ]


async def test_a_result_waits_for_the_database(street: TwoWorkers, clock: MockClock) -> None:
    """An outage shorter than the lease costs time, and neither the result nor the run."""
    shop, provider = RecordingTools(), FakeProvider([asks("unsafe…"), text("done")])
    async with started_worker(
        street.world, provider, *shop.tools, settings=NO_TIMEOUTS, pool=street.theirs
    ):
        run = await street.world.run(await street.world.session())
        await shop.until_ran(1)
        await street.turn(clock, 0)
        async with database_away(street.theirs):
            shop.open.set()
            await street.turn(clock, TICKING.lease_ttl / 3)
        await street.turn(clock, 5)
        (done,) = await until(street.world, [run])
    assert (done.state, done.claim_epoch, len(shop.ran)) == (RunState.SUCCEEDED, 1, 1)
    assert await ledger_rows(street.world) == [("unsafe", "finished")]


async def test_a_thread_that_outlives_its_claim_records_nothing(
    street: TwoWorkers, clock: MockClock
) -> None:
    """A sync tool cannot be stopped: its effect may still come, and its result is nobody's."""
    began, go, ended = trio.Event(), threading.Event(), threading.Event()

    @tool(effects=Effects.UNSAFE)
    def send(context: ToolContext) -> str:  # noqa: ARG001 - a context makes no difference
        trio.from_thread.run_sync(began.set)
        go.wait(60)
        ended.set()
        return "sent"

    provider = FakeProvider([answer(call("send")), text("done")])
    world, process = street.world, partial(started_worker, street.world, settings=NO_TIMEOUTS)
    async with process(provider, send, pool=street.theirs):
        run = await world.run(await world.session())
        await began.wait()
        await street.turn(clock, 0)
        await street.cut_off(clock, TICKING.lease_ttl * 0.9 + 1)
        async with process(FakeProvider([text("done")]), send):
            await street.turn(clock, TICKING.lease_ttl + TICKING.reclaim_interval)
            await until(world, [run])
        go.set()
        await trio.to_thread.run_sync(ended.wait, 60)
    assert await ledger_rows(world) == [("send", "started")]
    assert [result.content for result in await first_results(world, run)] == [f"send {UNKNOWN_RESULT}"]


# --- told to stop ---------------------------------------------------------------------------


async def test_a_call_cut_short_by_a_drain_is_not_started_by_the_peer(world: SeededTenant) -> None:
    """D16: released in mid-turn; the peer knows what may run again."""
    shop = RecordingTools()
    at_once = attrs.evolve(SETTINGS, drain_timeout=0.0)
    provider = FakeProvider([asks("unsafe…", "keyed…", "unsafe")])
    async with started_worker(world, provider, *shop.tools, settings=at_once) as worker:
        run = await world.run(await world.session())
        await shop.until_ran(3)
        await quiet(world)
        worker.drain.set()
        await worker.ended.wait()
    assert (await world.reload(run)).state is RunState.QUEUED
    shop.open.set()
    async with started_worker(world, FakeProvider([text("done")]), *shop.tools):
        (done,) = await until(world, [run])
    assert (done.claim_epoch, done.reclaims) == (2, 0)
    assert Counter(name for name, _ in shop.ran) == {"unsafe": 2, "keyed": 2}
    results = [result.content for result in await first_results(world, run)]
    assert results == [f"unsafe {UNKNOWN_RESULT}", "keyed, time 2", "unsafe, time 1"]


@pytest.mark.rule(11)
async def test_a_cancelled_run_leaves_its_call_begun(world: SeededTenant) -> None:
    """Nobody will ask what became of it; the next run of the session is not troubled by it."""
    shop, session = RecordingTools(), await world.session()
    provider = FakeProvider([asks("unsafe…"), asks("unsafe"), text("done")])
    async with started_worker(world, provider, *shop.tools):
        run = await world.run(session)
        await shop.until_ran(1)
        await world.runs.cancel(world.scope(), run.id)
        (cancelled,) = await until(world, [run])
        (done,) = await until(world, [await world.run(session)])
    assert (cancelled.state, done.state) == (RunState.CANCELLED, RunState.SUCCEEDED)
    assert sorted(await ledger_rows(world)) == [("unsafe", "finished"), ("unsafe", "started")]
    assert [result.content for result in await first_results(world, done)] == ["unsafe, time 1"]


# --- nothing else changes -------------------------------------------------------------------


async def quiet(world: SeededTenant) -> None:
    """Return when nothing goes on: no statement is under way, and all tasks wait."""
    await wait_all_tasks_blocked(0.02)
    while world.pool.in_flight:
        await wait_all_tasks_blocked(0.02)


@pytest.mark.rule(26)
async def test_no_connection_is_held_while_an_unsafe_tool_works(world: SeededTenant) -> None:
    """Recording takes a statement before and one after, and none meanwhile."""
    shop = RecordingTools()
    async with started_worker(world, FakeProvider([asks("unsafe…"), text("done")]), *shop.tools):
        run = await world.run(await world.session())
        await shop.until_ran(1)
        await quiet(world)
        assert world.pool.idle == world.pool.size
        shop.open.set()
        await until(world, [run])


@pytest.mark.rule(3)
@pytest.mark.parametrize("write", ["begin_call", "finish_call"])
async def test_a_lost_answer_of_the_ledger_runs_nothing_twice(
    world: SeededTenant, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is written, and the execution goes on as if it had heard."""
    send, lost = Pool.write, trio.Event()

    async def lose(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
        rows = await send(pool, query, **values)  # type: ignore[arg-type]  # handed through
        if query.name == write and not lost.is_set():
            lost.set()
            raise StoreUnavailable("the answer was lost")
        return rows

    monkeypatch.setattr(Pool, "write", lose)
    shop = RecordingTools()
    async with started_worker(world, FakeProvider([asks("unsafe"), text("done")]), *shop.tools):
        run = await world.run(await world.session())
        (done,) = await until(world, [run])
    assert lost.is_set()
    assert (done.state, done.claim_epoch, len(shop.ran)) == (RunState.SUCCEEDED, 1, 1)
    assert [result.content for result in await first_results(world, run)] == ["unsafe, time 1"]
    assert await ledger_rows(world) == [("unsafe", "finished")]
