"""The clock of lease tests moves only when nothing goes on, here or in the database."""

from __future__ import annotations

import threading
import time

import httpx
import pytest
import trio
import trio_asyncio

from hango.db.pool import Pool
from hango.domain import Effects
from hango.testing import FakeProvider, call, clock, hanging, text
from hango.testing.plugin import LeaseClock, SeededTenant, sql
from hango.tools import tool


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up at once."""
    monkeypatch.setattr(clock, "_PATIENCE", 0.05)


class Ticks:
    """Counts the seconds of a task that sleeps again and again."""

    def __init__(self) -> None:
        self.count = 0

    async def every(self, seconds: float) -> None:
        """Tick for ever."""
        while True:
            await trio.sleep(seconds)
            self.count += 1


# --- moving ---------------------------------------------------------------------------------


async def test_an_hour_has_120_half_minutes(lease_clock: LeaseClock, nursery: trio.Nursery) -> None:
    """Time passes from one thing that is due to the next; what is due at the end is done."""
    ticks = Ticks()
    nursery.start_soon(ticks.every, 30)
    await lease_clock.advance(3600)
    assert (ticks.count, lease_clock.current_time()) == (120, 3600)
    nursery.cancel_scope.cancel()


async def test_no_time_passes_by_itself(
    lease_clock: LeaseClock, hango_pool: Pool, nursery: trio.Nursery
) -> None:
    """It stands still but when it is told to move."""
    ticks = Ticks()
    nursery.start_soon(ticks.every, 0.001)
    await sql(hango_pool, "select pg_sleep(0.05)")
    await lease_clock.settle()
    assert (ticks.count, lease_clock.current_time()) == (0, 0)
    nursery.cancel_scope.cancel()


async def test_the_database_is_told_the_time_of_the_clock(
    lease_clock: LeaseClock, hango_pool: Pool
) -> None:
    """What lease statements get as their now moves with it."""
    told = hango_pool.now()
    await lease_clock.advance(90)
    later = hango_pool.now()
    assert told
    assert later
    assert (later - told).total_seconds() == 90


async def test_an_error_leaves_as_it_is(lease_clock: LeaseClock) -> None:
    """What is raised while time passes is not wrapped in a group."""

    async def late() -> None:
        async with lease_clock.autojump():
            await trio.sleep(5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await late()
    assert lease_clock.current_time() == 5


async def test_a_cancel_passes_through(lease_clock: LeaseClock) -> None:
    """A scope round it, or in it, ends when its time has come."""
    with trio.move_on_after(7) as outer:
        async with lease_clock.autojump():
            with trio.move_on_after(5) as inner:
                await trio.sleep_forever()
            await trio.sleep_forever()
    assert outer.cancelled_caught
    assert inner.cancelled_caught
    assert lease_clock.current_time() == 7


# --- what it waits for ----------------------------------------------------------------------


async def test_a_slow_statement_takes_no_time(lease_clock: LeaseClock, hango_pool: Pool) -> None:
    """While the database works all tasks wait, and timeouts of the connection are due: none comes."""
    async with lease_clock.autojump():
        await sql(hango_pool, "select pg_sleep(0.1)")
        at_once = lease_clock.current_time()
        await trio.sleep(30)
    assert at_once == 0


async def test_nor_does_a_new_connection(lease_clock: LeaseClock, hango_database: str) -> None:
    """Pools and listeners connect in no time."""
    async with lease_clock.autojump(), lease_clock.open_pool(hango_database) as pool, pool.listen():
        await sql(pool, "select 1")
        assert lease_clock.current_time() == 0


async def test_a_doorbell_on_its_way_is_waited_for(
    lease_clock: LeaseClock, hango_world: SeededTenant, nursery: trio.Nursery
) -> None:
    """What was rung is heard in the second in which it was rung, however slow the way to the ear is."""
    pool, heard = hango_world.pool, list[float]()
    session = await hango_world.session()
    async with pool.listen() as rings:
        connection = rings._connection

        async def occupy() -> None:
            async with rings._asking:
                busy.set()
                hop = trio_asyncio.aio_as_trio(connection.execute, loop=pool._loop)
                await hop("select pg_sleep(0.2)")

        async def hear() -> None:
            await anext(rings)
            heard.append(trio.current_time())

        busy = trio.Event()
        nursery.start_soon(occupy)
        nursery.start_soon(hear)
        await busy.wait()
        await hango_world.run(session)
        await lease_clock.advance(1)
    assert heard == [0]


async def test_who_listens_for_an_hour_still_hears(
    lease_clock: LeaseClock, hango_world: SeededTenant
) -> None:
    """The looks whether a silent line is alive do not fail for want of time."""
    session = await hango_world.session()
    async with hango_world.pool.listen() as rings, trio.open_nursery() as nursery:
        nursery.start_soon(anext, rings)
        await lease_clock.advance(3600)
        await hango_world.run(session)
        await lease_clock.settle()
        assert not nursery.child_tasks


async def test_a_listener_whose_line_was_cut_finds_out_at_rest(
    lease_clock: LeaseClock, hango_world: SeededTenant
) -> None:
    """The end of a connection is no less under way than a ring."""
    async with hango_world.worker(FakeProvider([])) as worker:
        await lease_clock.settle()
        (rings,) = worker.pool._listening
        async with worker.cut_off():
            await lease_clock.settle()
            assert rings not in worker.pool._listening


async def test_a_tool_in_a_thread_is_waited_for(
    lease_clock: LeaseClock, hango_world: SeededTenant
) -> None:
    """Its timeout of 30 s cannot come while it works for a moment of real time."""

    @tool(effects=Effects.READ_ONLY)
    def slow() -> str:
        """Work."""
        time.sleep(0.1)
        return "worked"

    provider = FakeProvider([call("slow"), text("done")])
    async with hango_world.worker(provider, slow), lease_clock.autojump():
        await hango_world.ended(await hango_world.run(await hango_world.session()))
    assert lease_clock.current_time() == 0
    assert "worked" in str(provider.requests[-1].messages[-1])


async def test_a_tool_that_hangs_in_a_thread_need_not_be(
    lease_clock: LeaseClock, hango_world: SeededTenant
) -> None:
    """For a test of just that, the clock goes on: after 30 s the tool has timed out."""
    never = threading.Event()

    @tool(effects=Effects.READ_ONLY)
    def hangs() -> str:
        """Hang."""
        never.wait()
        return ""

    lease_clock.waits_for_threads = False
    provider = FakeProvider([call("hangs"), text("done")])
    try:
        async with hango_world.worker(provider, hangs), lease_clock.autojump():
            await hango_world.ended(await hango_world.run(await hango_world.session()))
    finally:
        never.set()
    assert lease_clock.current_time() == 30


async def test_a_request_to_the_served_api_takes_no_time(
    lease_clock: LeaseClock, hango_world: SeededTenant, hango_client: httpx.AsyncClient
) -> None:
    """Client and server are both here; one that waits for a run waits in the clock's time."""
    session = await hango_world.session()
    async with hango_world.worker(FakeProvider([hanging()])), lease_clock.autojump():
        posted = await hango_client.post(f"/v1/sessions/{session.id}/runs", json={"input": "Hi"})
        at_once = lease_clock.current_time()
        waited = await hango_client.get(posted.headers["Location"], headers={"Prefer": "wait=10"})
    assert (at_once, waited.json()["state"]) == (0, "running")
    assert lease_clock.current_time() >= 10


async def test_it_can_be_held(lease_clock: LeaseClock) -> None:
    """For what it cannot see, a test says when it begins and when it ends."""

    async def elsewhere() -> None:
        with lease_clock.held():
            await trio.to_thread.run_sync(time.sleep, 0.05)

    lease_clock.waits_for_threads = False
    async with lease_clock.autojump(), trio.open_nursery() as nursery:
        nursery.start_soon(elsewhere)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await trio.sleep_forever()
        assert lease_clock.current_time() == 1
        assert not [task for task in nursery.child_tasks if "elsewhere" in task.name]


# --- what it refuses ------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_what_never_comes_to_rest_is_named(lease_clock: LeaseClock, hango_pool: Pool) -> None:
    """A test that would hang fails instead, and says on what."""
    with lease_clock.held(), pytest.raises(AssertionError, match="1 that hold the clock"):
        await lease_clock.advance(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sql, hango_pool, "select pg_sleep(0.3)")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(AssertionError, match="1 database calls"):
            await lease_clock.settle()


@pytest.mark.usefixtures("impatient")
async def test_who_waits_for_what_time_does_not_bring_is_told(lease_clock: LeaseClock) -> None:
    """It is no use to let time pass when nobody waits for it."""
    with pytest.raises(AssertionError, match="no task waits for time to pass"):
        async with lease_clock.autojump():
            await trio.sleep_forever()


async def test_who_waits_for_more_than_a_day_is_told(
    lease_clock: LeaseClock, nursery: trio.Nursery
) -> None:
    """Clocks that tick for ever do not keep a test from its end."""
    nursery.start_soon(Ticks().every, 3000)
    with pytest.raises(AssertionError, match="86400 seconds have passed"):
        async with lease_clock.autojump():
            await trio.sleep_forever()
    nursery.cancel_scope.cancel()


async def test_a_clock_that_no_run_has_is_refused() -> None:
    """A fixture that has it is not enough, and that is said before anything waits for ever."""
    with pytest.raises(RuntimeError, match="lease_clock must be among them"):
        await LeaseClock().settle()
    with pytest.raises(RuntimeError, match="another clock"):
        async with LeaseClock().open_pool("postgresql://nowhere"):
            pass
