"""A lease lapses and another worker takes over: the same each time, to the second."""

from __future__ import annotations

import attrs
import pytest
import trio

from hango import Effects, tool
from hango.domain import ProviderRequest, RunState
from hango.testing import Answer, FakeProvider, answer, call, hanging, text
from hango.testing.plugin import LeaseClock, SeededTenant, sql

ROUNDS = range(5)


@attrs.define
class Diary:
    """Who was asked, and when by the test's clock."""

    entries: list[tuple[float, str]] = attrs.field(factory=list)

    def model(self, name: str, *answers: Answer) -> FakeProvider:
        """Make a model whose calls are written down."""
        left = list(answers)

        def say(_: ProviderRequest) -> Answer:
            self.entries.append((trio.current_time(), name))
            return left.pop(0)

        return FakeProvider(say)


@pytest.fixture
def diary() -> Diary:
    """Have an empty diary."""
    return Diary()


@pytest.mark.rule(5)
@pytest.mark.parametrize("_round", ROUNDS)
async def test_a_killed_worker_is_followed_at_the_sweep_after_its_lease(
    hango_world: SeededTenant, lease_clock: LeaseClock, diary: Diary, _round: int
) -> None:
    """D01: the lease holds at the sweep of second 90; the one of second 120 takes the run back."""
    async with hango_world.worker(diary.model("first", hanging(text("half")))) as first:
        run = await hango_world.run(await hango_world.session())
        await lease_clock.settle()
        await first.kill()
        async with hango_world.worker(diary.model("second", answer(text("whole")))):
            await lease_clock.advance(300)
    done = await hango_world.reload(run)
    assert (done.state, done.claim_epoch, done.reclaims) == (RunState.SUCCEEDED, 2, 1)
    assert diary.entries == [(0, "first"), (120, "second")]


@pytest.mark.rule(4)
@pytest.mark.parametrize("_round", ROUNDS)
async def test_a_worker_cut_off_is_followed_too_and_comes_back_to_work(
    hango_world: SeededTenant, lease_clock: LeaseClock, diary: Diary, _round: int
) -> None:
    """D03: with the database back it executes again, under the same owner id, what is queued then."""
    cut_off = diary.model("first", hanging(), answer(text("back")))
    session = await hango_world.session()
    async with hango_world.worker(cut_off) as first:
        run = await hango_world.run(session)
        await lease_clock.settle()
        async with first.cut_off():
            await lease_clock.advance(7)
            second = hango_world.worker(diary.model("second", answer(text("whole"))))
            async with second, lease_clock.autojump():
                done = await hango_world.ended(run)
        await lease_clock.advance(10)
        later = await hango_world.run(session)
        await lease_clock.settle()
    assert (done.state, done.claim_epoch) == (RunState.SUCCEEDED, 2)
    assert (await hango_world.reload(later)).last_owner_id == first.queue.owner_id
    assert diary.entries == [(0, "first"), (97, "second"), (107, "first")]


@pytest.mark.rule(12)
async def test_a_run_waits_for_a_process_that_has_its_tool(
    hango_world: SeededTenant, lease_clock: LeaseClock
) -> None:
    """R-F7, W-M7: while a new tool is rolled out, no run is lost and none does without it."""

    @tool(effects=Effects.READ_ONLY)
    async def wire() -> str:
        """Wire money; safe to run again."""
        return "wired"

    await sql(hango_world.pool, "update agents set tools = '{wire}'")
    old, new = FakeProvider([text("never")]), FakeProvider([call("wire"), text("done")])
    async with hango_world.worker(old):
        run = await hango_world.run(await hango_world.session())
        await lease_clock.advance(5)
        waiting = await hango_world.reload(run)
        assert (waiting.state, waiting.waiting_on) == (RunState.QUEUED, "tool 'wire'")
        async with hango_world.worker(new, wire), lease_clock.autojump():
            ended = await hango_world.ended(run)
    assert (ended.state, ended.reclaims, ended.waiting_on) == (RunState.SUCCEEDED, 0, None)
    assert (old.calls, new.calls) == (0, 2)
