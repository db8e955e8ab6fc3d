"""The checks find what must not be, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import attrs
import pytest
import trio

from hango.db.connections import Connection
from hango.db.pool import Pool, open_pool
from hango.db.queries import QUERIES
from hango.db.units import execute
from hango.domain import Effects, Limits, Role, Run, RunState, StopReason, TextBlock, UserStatus
from hango.store.invariants import CHECKS, Violation, check
from hango.testing import FakeProvider, answer, broken, call, failing, hanging, text
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql
from hango.tools import tool

from support.workers import BlockingTool, started_worker, until

pytestmark = pytest.mark.rule(26)


@tool(effects=Effects.READ_ONLY)
async def note() -> str:
    """Note; safe to run again."""
    return "noted"


@tool(effects=Effects.UNSAFE)
async def send() -> str:
    """Send; not safe to run again."""
    return "sent"


@attrs.frozen
class Story:
    """A healthy database: a session with a run that has ended and two that wait, and another session.

    The run's messages: 1 input, 2 answer with two calls, 3 results, 4 answer.
    """

    world: SeededTenant
    ended: Run
    waiting: Sequence[Run]

    @property
    def pool(self) -> Pool:
        """The database."""
        return self.world.pool


@pytest.fixture
async def story(database: str, pool: Pool) -> Story:
    """Let a run be executed, and leave others in line."""
    world = await make_seeded_tenant(pool)
    session = await world.session()
    run = await world.run(session)
    provider = FakeProvider([answer(call("note"), call("send")), text("done")])
    # on connections of its own: of one whose read was cancelled, a lock may be left, and constraints
    # are to be taken away
    async with open_pool(database) as own, started_worker(world, provider, note, send, pool=own):
        (ended,) = await until(world, [run], RunState.SUCCEEDED)
    waiting = [await world.run(session) for _ in range(2)]
    await world.session()
    return Story(world, ended, waiting)


# (check, what is wrong, statements), after the block that takes the constraints away
_BLOCKS = re.split(
    r"^-- (\w+): (.+)$",
    Path(__file__).with_name("violations.sql").read_text("utf-8"),
    flags=re.MULTILINE,
)[1:]
(_, _, UNREFUSED), *VIOLATIONS = zip(_BLOCKS[::3], _BLOCKS[1::3], _BLOCKS[2::3], strict=True)


async def found_in_passing(pool: Pool, statements: str) -> Sequence[Violation]:
    """Run *statements* and all checks in a transaction that is rolled back."""
    bounds = {"after": UUID(int=0), "last": UUID(int=2**128 - 1), "patience": timedelta(minutes=5)}

    async def unit(connection: Connection) -> Sequence[Violation]:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(UNREFUSED)
        await connection.execute(statements)
        found = [
            Violation(query.name.removeprefix("check_"), row["session_id"], row["run_id"], row["what"])
            for query in CHECKS
            for row in await execute(connection, query, **{n: bounds[n] for n in query.parameters})
        ]
        await transaction.rollback()
        return found

    return await pool.unit(unit)


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _, _ in VIOLATIONS))
async def test_what_must_not_be_is_found(story: Story, name: str) -> None:
    """Each way of breaking an invariant is found by the check that is about it, and located."""
    sessions = {session.id for session in await story.world.sessions.list(story.world.scope())}
    runs = {None, story.ended.id, *(run.id for run in story.waiting)}
    for what, statements in ((what, found) for about, what, found in VIOLATIONS if about == name):
        found = await found_in_passing(story.pool, statements)
        located = [violation for violation in found if violation.check == name]
        assert located, what
        assert all(v.session_id in sessions and v.run_id in runs and v.what for v in located), what
    assert await check(story.pool) == []


def test_every_check_has_a_violation_that_it_finds() -> None:
    """No check is there that could be empty; and none of the file is left out."""
    names = [query.name.removeprefix("check_") for query in CHECKS]
    assert set(names) == {name for name, _, _ in VIOLATIONS}
    assert [name for name in QUERIES if name.startswith("check_")] == [query.name for query in CHECKS]


async def test_a_database_without_anything_is_healthy(pool: Pool) -> None:
    """Nothing is no violation."""
    assert await check(pool) == []


async def test_every_session_is_looked_at_however_many_a_page_has(pool: Pool) -> None:
    """The pages leave out no session, be it the first, the last, or one between."""
    world = await make_seeded_tenant(pool)
    sessions = [await world.session() for _ in range(7)]
    await sql(pool, "update sessions set last_seq = 1")
    for page in (1, 2, 3, 7, 8):
        found = await check(pool, page=page)
        assert sorted(violation.session_id for violation in found) == [s.id for s in sessions]
        assert {violation.check for violation in found} == {"seq"}


async def test_a_lease_that_lapsed_just_now_is_no_violation(story: Story) -> None:
    """The next sweep is not late yet; how late it may be is the caller's."""
    claim = await story.world.queue().claim_next(story.ended.session_id)
    assert claim
    await sql(
        story.pool,
        "update runs set lease_expires_at = now() - interval '1 minute' where state = 'running'",
    )
    assert await check(story.pool) == []
    (found,) = await check(story.pool, stuck_after=30)
    assert found == Violation("stuck_runs", story.ended.session_id, story.waiting[0].id, found.what)


# --- whatever hango itself does is healthy ---------------------------------------------------


async def test_a_turn_under_way_is_healthy(story: Story) -> None:
    """The answer is stored and its tools are at work: nothing is missing yet."""
    gate = BlockingTool()
    async with started_worker(
        story.world, FakeProvider([call("hold"), text("done"), text("done")]), gate.tool
    ):
        await gate.entered.wait()
        assert await check(story.pool) == []
        gate.open.set()
        await until(story.world, story.waiting)
    assert await check(story.pool) == []


async def test_a_cancelled_run_and_the_one_that_answers_its_calls_are_healthy(story: Story) -> None:
    """The dangling call has no result, then a synthetic one, newer than its run's end."""
    gate, (first, second) = BlockingTool(), story.waiting
    async with started_worker(story.world, FakeProvider([call("hold"), text("done")]), gate.tool):
        await gate.entered.wait()
        await story.world.runs.cancel(story.world.scope(), first.id)
        await until(story.world, [first], RunState.CANCELLED)
        assert await check(story.pool) == []
        await until(story.world, [second], RunState.SUCCEEDED)
    assert await check(story.pool) == []


@pytest.mark.parametrize(
    "script",
    [
        [broken(text("half an answer"))] * 3,
        [call("note"), *[broken(call("note"))] * 3],
        [failing(ValueError("x"))],
        [call("note"), failing(ValueError("x"))],
        [call("note"), call("unknown"), call("note", "{"), text("")],
        [answer(call("note"), stop=StopReason.MAX_TOKENS)],
        [answer(text("no"), stop=StopReason.REFUSAL)],
        [answer(text("wait"), stop=StopReason.PAUSE_TURN)],
    ],
)
async def test_however_a_run_ends_it_is_healthy(story: Story, script: list[object]) -> None:
    """Failed with and without something stored, or done with an odd end; and what follows on it."""
    first, second = story.waiting
    provider = FakeProvider([*script, text("done")])  # type: ignore[list-item]  # answers and blocks
    async with started_worker(story.world, provider, note):
        await until(story.world, [first])
        assert await check(story.pool) == []
        await until(story.world, [second], RunState.SUCCEEDED)
    assert await check(story.pool) == []


async def test_a_run_that_is_cut_short_with_half_an_answer_is_healthy(story: Story) -> None:
    """Cancelled, what had arrived is stored as partial; released, nothing is."""
    provider = FakeProvider([hanging(text("half")), hanging(text("half"))])
    async with started_worker(story.world, provider) as worker:
        await provider.wait_for_calls(1)
        await story.world.runs.cancel(story.world.scope(), story.waiting[0].id)
        await until(story.world, story.waiting[:1], RunState.CANCELLED)
        await provider.wait_for_calls(2)
        worker.scope.cancel()
    assert await story.world.queue().sweep() == 1
    assert (await story.world.reload(story.waiting[1])).state is RunState.QUEUED
    assert await check(story.pool) == []


async def test_a_run_that_reaches_the_cap_is_healthy(pool: Pool) -> None:
    """Its last message is a turn beyond its iterations."""
    world = await make_seeded_tenant(pool, limits=Limits(max_iterations=2))
    run = await world.run(await world.session())
    async with started_worker(world, FakeProvider([call("note"), call("note")]), note):
        await until(world, [run], RunState.FAILED)
    assert await check(pool) == []


async def test_runs_that_nobody_executed_are_healthy(story: Story) -> None:
    """Cancelled in the line, failed without a turn, taken back by the sweep, until it gives up."""
    world = story.world
    await world.runs.cancel(world.scope(), story.waiting[0].id)
    assert await check(story.pool) == []
    queue = world.queue(max_reclaims=2)
    for _ in range(2):
        await sql(story.pool, "update runs set not_before = null where state = 'queued'")
        claim = await queue.claim_next(story.ended.session_id)
        assert claim
        assert await check(story.pool) == []
        await world.lapse(claim.run)
        await queue.sweep()
        assert await check(story.pool) == []
    assert (await world.reload(story.waiting[1])).state is RunState.FAILED


async def test_a_run_that_may_not_be_executed_any_more_is_healthy(story: Story) -> None:
    """Its creator was disabled, so it fails without a word."""
    owner = story.world.users[Role.OWNER]
    await sql(story.pool, "update users set status = $2 where id = $1", owner.id, UserStatus.DISABLED)
    async with started_worker(story.world, FakeProvider([])):
        ended = await until(story.world, story.waiting, RunState.FAILED)
    assert {run.error.code for run in ended if run.error} == {"creator_inactive"}
    assert await check(story.pool) == []


async def test_messages_that_came_through_the_api_are_healthy(pool: Pool) -> None:
    """They are of no run, and may hold calls and results of nobody's."""
    world = await make_seeded_tenant(pool)
    session = await world.session()
    for role in ("user", "assistant", "assistant"):
        await world.sessions.add_message(world.scope(), session.id, role, (TextBlock("hello"),))
    run = await world.run(session)
    async with started_worker(world, FakeProvider([text("hello")])):
        await until(world, [run], RunState.SUCCEEDED)
    assert await check(pool) == []


async def test_looking_waits_for_nobody_and_holds_nobody_up(story: Story) -> None:
    """It takes no lock that a writer would wait for, nor waits for one that a writer has."""
    queue = story.world.queue()
    claim = await queue.claim_next(story.ended.session_id)
    assert claim
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_look_again_and_again, story.pool)
            for _ in range(50):
                assert (await queue.renew([claim])).renewed
            nursery.cancel_scope.cancel()


async def _look_again_and_again(pool: Pool) -> None:
    while True:
        assert await check(pool) == []
