"""Claims, leases and the sweep, as single statements against real Postgres."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

import attrs
import pytest
import trio

from hango.db.notifications import Notification
from hango.db.pool import Pool
from hango.db.queries import Query, Row
from hango.domain import (
    Interrupted,
    OutcomeStatus,
    RunOutcome,
    RunState,
    Session,
    StopReason,
    Usage,
    new_id,
)
from hango.errors import StoreUnavailable
from hango.store.claims import Claim
from hango.store.queue import PollResult, RunQueue
from hango.telemetry import names
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql

from support.counters import counted
from support.locks import row_held, uncommitted, until_waiting

DOUBLED = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]  # seconds


async def claim(queue: RunQueue, session: Session) -> Claim:
    """Claim the head, which must be there."""
    got = await queue.claim_next(session.id)
    assert got is not None
    return got


@pytest.mark.rule(1)
async def test_one_of_many_claimers_gets_the_run(world: SeededTenant) -> None:
    """Eight at once: one claim is won, the others get nothing."""
    session = await world.session()
    run = await world.run(session)
    won: list[Claim | None] = []
    lost = counted(names.RUN_CLAIMS, outcome="lost")

    async def race() -> None:
        won.append(await world.queue().claim_next(session.id))

    async with (
        trio.open_nursery() as nursery,
        row_held(world.pool, "runs", run.id),
    ):
        for _ in range(8):
            nursery.start_soon(race)
        await until_waiting(world.pool, 8)
    assert len([got for got in won if got]) == 1
    assert counted(names.RUN_CLAIMS, outcome="lost") == lost + 7


@pytest.mark.rule(1)
async def test_a_probe_of_an_idle_or_busy_line_is_not_a_lost_claim(world: SeededTenant) -> None:
    """Nothing due was seen, so nothing was lost."""
    session = await world.session()
    lost = counted(names.RUN_CLAIMS, outcome="lost")
    assert await world.queue().claim_next(session.id) is None
    await world.run(session)
    await claim(world.queue(), session)
    await world.run(session)
    assert await world.queue().claim_next(session.id) is None
    assert counted(names.RUN_CLAIMS, outcome="lost") == lost


@pytest.mark.rule(2)
async def test_a_session_runs_one_at_a_time_in_order(world: SeededTenant) -> None:
    """The next run can be claimed only when the one before has ended."""
    session = await world.session()
    runs = [await world.run(session, f"run {n}") for n in range(3)]
    for run in runs:
        got = await claim(world.queue(), session)
        assert got.run.id == run.id
        assert await world.queue().claim_next(session.id) is None
        await sql(
            world.pool,
            "update runs set state = 'succeeded', finished_at = now(), owner_id = null,"
            " lease_expires_at = null where id = $1",
            run.id,
        )


@pytest.mark.rule(2)
async def test_a_reclaimed_run_goes_before_later_ones(world: SeededTenant) -> None:
    """It keeps its place at the head of the line."""
    session = await world.session()
    first, _ = await world.run(session, "one"), await world.run(session, "two")
    await claim(world.queue(), session)
    await world.lapse(first)
    await world.queue().sweep()
    assert (await claim(world.queue(), session)).run.id == first.id


@pytest.mark.rule(2)
async def test_a_backed_off_head_holds_its_session_back(world: SeededTenant) -> None:
    """A later run does not overtake, and the look says when to come back."""
    session = await world.session()
    head, _ = await world.run(session, "one"), await world.run(session, "two")
    await sql(
        world.pool, "update runs set not_before = now() + interval '1 hour' where id = $1", head.id
    )
    queue = world.queue()
    assert await queue.claim_next(session.id) is None
    found = await queue.poll(10)
    assert found.heads == ()
    assert found.next_due_in == pytest.approx(3600, abs=60)


@pytest.mark.rule(2)
async def test_the_database_itself_refuses_a_second_running_run(world: SeededTenant) -> None:
    """The unique index is the backstop when everything else is wrong."""
    session = await world.session()
    await world.run(session, "one")
    second = await world.run(session, "two")
    await claim(world.queue(), session)
    force = "update runs set state = 'running', owner_id = $2, lease_expires_at = now() where id = $1"
    with pytest.raises(Exception, match="runs_one_running"):
        await sql(world.pool, force, second.id, new_id())


@pytest.mark.rule(6)
async def test_a_look_lists_heads_oldest_first_and_tenants_in_turn(pool: Pool) -> None:
    """A tenant with a long backlog does not keep the others waiting."""
    one, two = await make_seeded_tenant(pool, "one"), await make_seeded_tenant(pool, "two")
    expected: dict[str, list[UUID]] = {"one": [], "two": []}
    for world, count in ((one, 3), (two, 2)):
        for _ in range(count):
            session = await world.session()
            await world.run(session)
            await world.run(session)
            expected[world.tenant.slug].append(session.id)
    a, b = expected["one"], expected["two"]
    assert [head[1] for head in (await one.queue().poll(10)).heads] == [a[0], b[0], a[1], b[1], a[2]]
    assert (await one.queue().poll(2)).heads == (
        (one.tenant.id, a[0]),
        (two.tenant.id, b[0]),
    )


# What may be claimed, told without a thought for cost.
_HEADS = """
select tenant_id, session_id, id
  from runs
 where state = 'queued' and coalesce(not_before <= now(), true)
   and not exists (select from runs as ahead
                    where ahead.session_id = runs.session_id and ahead.state in ('queued', 'running')
                      and ahead.session_seq < runs.session_seq)
 order by id
"""


@pytest.mark.rule(6)
async def test_a_poll_lists_what_may_be_claimed_whatever_the_queue_looks_like(pool: Pool) -> None:
    """Lines of any length with heads running, ended, backed off, due again or cancelled; any limit."""
    chance, worlds = random.Random(6), [await make_seeded_tenant(pool, name) for name in "abcd"]  # noqa: S311 - test data
    for world in worlds:
        for _ in range(chance.randrange(12)):
            session = await world.session()
            for _ in range(chance.randrange(4)):
                await world.run(session)
    await sql(pool, "update runs set not_before = now() + (random() - 0.5) * interval '1 hour'"
                    " where session_seq = 1 and random() < 0.4")  # fmt: skip
    await sql(pool, "update runs set state = 'running', owner_id = id, lease_expires_at = now(),"
                    " not_before = null where session_seq = 1 and random() < 0.2")  # fmt: skip
    await sql(pool, "update runs set state = 'cancelled', finished_at = now()"
                    " where state = 'queued' and random() < 0.2")  # fmt: skip
    lines: dict[UUID, list[Row]] = {}
    for row in await sql(pool, _HEADS):
        lines.setdefault(row["tenant_id"], []).append(row)
    heads = [(turn, row["id"], row) for line in lines.values() for turn, row in enumerate(line)]
    expected = tuple((row["tenant_id"], row["session_id"]) for _, _, row in sorted(heads))
    assert expected
    for limit in (1, 3, len(expected), 100):
        # of the last turn, those go on whose tenants began with the oldest
        found = (await worlds[0].queue().poll(limit)).heads
        assert len(found) == min(limit, len(expected))
        assert set(found) <= set(expected)
        assert limit < len(expected) or found == expected


@pytest.mark.rule(6)
@pytest.mark.parametrize(("not_before", "claimable"), [("now()", True), ("now() + '1 hour'", False)])
async def test_a_poll_for_one_session_sees_only_its_head(
    world: SeededTenant, not_before: str, *, claimable: bool
) -> None:
    """As `hango run` polls: others' heads are neither listed nor waited for."""
    session, other = await world.session(), await world.session()
    for _ in range(2):
        await world.run(other)
        await world.run(session)
    back_off = f"update runs set not_before = {not_before} where session_seq = 1 and session_id = $1"  # noqa: S608 - test data
    await sql(world.pool, back_off, session.id)
    queue = attrs.evolve(world.queue(), only=session.id)
    polled = await queue.poll(10)
    assert polled.heads == (((world.tenant.id, session.id),) if claimable else ())
    assert polled.next_due_in == (None if claimable else pytest.approx(3600, abs=60))
    await sql(world.pool, "update runs set not_before = null")
    await claim(queue, session)
    assert await queue.poll(10) == PollResult((), None)


@pytest.mark.rule(6)
async def test_the_running_runs_of_a_tenant_are_bounded_exactly(world: SeededTenant) -> None:
    """S-M5: eight claims that saw room for three at one moment, of eight processes: three win."""
    sessions = [await world.session() for _ in range(8)]
    for session in sessions:
        await world.run(session)
    won: list[Claim | None] = []

    async def one(session: Session) -> None:
        won.append(await attrs.evolve(world.queue(), max_running=3).claim_next(session.id))

    lost = counted(names.RUN_CLAIMS, outcome="lost")
    turn = "select pg_advisory_xact_lock(hashtextextended('running ' || id, 0)) from tenants"
    async with trio.open_nursery() as nursery, uncommitted(world.pool, turn):
        for session in sessions:
            nursery.start_soon(one, session)
        await until_waiting(world.pool, 8)
    assert len([got for got in won if got]) == 3
    assert counted(names.RUN_CLAIMS, outcome="lost") == lost  # there was no room, so nothing was lost


@pytest.mark.rule(6)
async def test_a_tenant_at_its_bound_of_running_runs_is_not_polled(pool: Pool) -> None:
    """Until one of them ends; the others' heads are listed all the while, and a claim takes none."""
    one, two = await make_seeded_tenant(pool, "one"), await make_seeded_tenant(pool, "two")
    mine, other = [await one.session() for _ in range(3)], await two.session()
    for session in mine:
        await one.run(session)
    await two.run(other)
    queue = attrs.evolve(one.queue(), max_running=2)
    first, _ = [await claim(queue, session) for session in mine[:2]]
    assert (await queue.poll(10)).heads == ((two.tenant.id, other.id),)
    assert await queue.claim_next(mine[2].id) is None
    await first.settle(RunOutcome(OutcomeStatus.DONE, 1, Usage(), (), StopReason.END_TURN))
    heads = (await queue.poll(10)).heads
    assert heads == ((one.tenant.id, mine[2].id), (two.tenant.id, other.id))
    await claim(queue, mine[2])


@pytest.mark.rule(4)
async def test_a_renewal_never_shortens_a_lease(world: SeededTenant) -> None:
    """The new end is the later of the old one and now plus the ttl."""
    session = await world.session()
    await world.run(session)
    queue = world.queue()
    got = await claim(queue, session)
    await sql(
        world.pool,
        "update runs set lease_expires_at = now() + interval '1 hour' where id = $1",
        got.run.id,
    )
    renewal = await queue.renew([got])
    assert got.key in renewal.renewed
    left = await sql(
        world.pool,
        "select lease_expires_at > now() + interval '59 minutes' as kept from runs where id = $1",
        got.run.id,
    )
    assert left[0]["kept"]


@pytest.mark.rule(4)
async def test_a_renewal_tells_lost_cancelled_and_skipped_apart(world: SeededTenant) -> None:
    """Locked by someone else is neither lost nor renewed; a cancel is told every time."""
    queue, sessions = world.queue(), [await world.session() for _ in range(4)]
    for session in sessions:
        await world.run(session)
    fine, gone, cancelled, locked = [await claim(queue, session) for session in sessions]
    await world.lapse(gone.run)
    await world.queue().sweep()
    await world.runs.cancel(world.scope(), cancelled.run.id)
    async with row_held(world.pool, "runs", locked.run.id):
        for _ in range(2):
            renewal = await queue.renew([locked, cancelled, gone, fine])
            assert renewal.renewed == {fine.key, cancelled.key}
            assert renewal.lost == {gone.key}
            assert renewal.cancelled == {cancelled.key}


@pytest.mark.rule(4)
async def test_a_claim_again_by_the_same_process_ends_the_old_claim(world: SeededTenant) -> None:
    """The epoch tells them apart: a renewal of the old one reports it lost."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    old = await claim(queue, session)
    await world.lapse(run)
    await queue.sweep()
    new = await claim(queue, session)
    renewal = await queue.renew([old, new])
    assert renewal.lost == {old.key}
    assert renewal.renewed == {new.key}


@pytest.mark.rule(4)
async def test_the_local_deadline_counts_from_before_the_request(world: SeededTenant) -> None:
    """However long the answer took, this process stops a margin before the lease can lapse."""
    session, queue = await world.session(), world.queue(lease_ttl=50.0)
    run = await world.run(session)
    got: list[Claim] = []

    async def ask() -> None:
        got.append(await claim(queue, session))

    asked_at = trio.current_time()
    async with trio.open_nursery() as nursery, row_held(world.pool, "runs", run.id):
        nursery.start_soon(ask)
        await until_waiting(world.pool)
        answered_after = trio.current_time()
    assert asked_at + 45.0 <= got[0].lease.deadline <= answered_after + 45.0


@pytest.mark.rule(5)
async def test_the_sweep_takes_lapsed_leases_only(world: SeededTenant) -> None:
    """A live lease is left alone; a lapsed one queues again with its progress and its last owner."""
    sessions, queue = [await world.session() for _ in range(2)], world.queue()
    runs = [await world.run(session) for session in sessions]
    for session in sessions:
        await claim(queue, session)
    await sql(world.pool, "update runs set resume_turn = 3, iterations = 3 where id = $1", runs[0].id)
    await world.lapse(runs[0])
    assert await world.queue().sweep() == 1
    lapsed, alive = [await world.reload(run) for run in runs]
    assert (lapsed.state, alive.state) == (RunState.QUEUED, RunState.RUNNING)
    assert (lapsed.resume_turn, lapsed.reclaims, lapsed.last_owner_id) == (3, 1, queue.owner_id)
    assert lapsed.not_before is None


@pytest.mark.rule(5)
async def test_the_sweep_pages_through_all(world: SeededTenant) -> None:
    """More lapsed runs than a page holds are all taken in one sweep."""
    queue = world.queue()
    for _ in range(205):
        session = await world.session()
        await world.run(session)
    await sql(
        world.pool,
        "update runs set state = 'running', owner_id = $1, lease_expires_at = now() - interval '1 s'",
        queue.owner_id,
    )
    assert await queue.sweep() == 205
    assert await queue.sweep() == 0


@pytest.mark.rule(5)
async def test_reclaims_back_off_from_the_second_on(world: SeededTenant) -> None:
    """The first has no pause, later ones triple it up to five minutes, less up to three quarters."""
    session, queue = await world.session(), world.queue(max_reclaims=0)
    run = await world.run(session)
    pauses = []
    for _ in range(13):
        await sql(world.pool, "update runs set not_before = null where id = $1", run.id)
        await claim(queue, session)
        await world.lapse(run)
        await queue.sweep()
        left = await sql(
            world.pool,
            "select extract(epoch from not_before - now())::float8 as pause from runs where id = $1",
            run.id,
        )
        pauses.append(left[0]["pause"])
    assert pauses[0] is None
    longest = [1, 3, 9, 27, 81, 243, *[300] * 6]
    for most, pause in zip(longest, pauses[1:], strict=True):
        assert 0.25 * most - 0.5 <= pause <= most


@pytest.mark.rule(5)
async def test_runs_lost_together_do_not_come_back_together(world: SeededTenant) -> None:
    """D08: one of them may be what killed their process; the others must not meet it each time."""
    queue = world.queue()
    for _ in range(40):
        session = await world.session()
        await world.run(session)
        await claim(queue, session)
    await sql(world.pool, "update runs set reclaims = 5, lease_expires_at = now() - interval '1 s'")
    assert await queue.sweep() == 40
    found = await sql(
        world.pool,
        "select extract(epoch from max(not_before) - min(not_before))::float8 as apart from runs",
    )
    assert found[0]["apart"] > 0.5 * 81  # of at most 81 seconds


@pytest.mark.rule(5)
@pytest.mark.parametrize(("cancel", "reclaims", "limit", "state"), [
    (False, 8, 10, "queued"),
    (False, 9, 10, "failed"),
    (False, 50, 0, "queued"),
    (True, 9, 10, "cancelled"),
    (True, 0, 10, "cancelled"),
])  # fmt: skip
async def test_the_sweep_decides_cancelled_before_crash_loop_before_queued(
    world: SeededTenant,
    *,
    cancel: bool,
    reclaims: int,
    limit: int,
    state: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One CASE: what was cancelled ends so, what never gets on ends as crash_loop, the rest queue."""
    session, queue = await world.session(), world.queue(max_reclaims=limit)
    run = await world.run(session)
    await claim(queue, session)
    await sql(world.pool, "update runs set reclaims = $2 where id = $1", run.id, reclaims)
    if cancel:
        await world.runs.cancel(world.scope(), run.id)
    await world.lapse(run)
    await queue.sweep()
    now = await world.reload(run)
    assert now.state == state
    assert (now.error.code if now.error else None) == ("crash_loop" if state == "failed" else None)
    warned = [line for line in caplog.records if "its lease had lapsed" in line.getMessage()]
    assert [line.levelname for line in warned] == ["WARNING"] * (state == "failed")


@pytest.mark.rule(5)
async def test_a_cancel_that_commits_while_the_sweep_waits_is_honoured(world: SeededTenant) -> None:
    """The sweep decides on the row as it locked it, not on the snapshot from before."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    await claim(queue, session)
    await world.lapse(run)
    # SKIP LOCKED never waits, so the change must fall between snapshot and lock: many tries do it
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.runs.cancel, world.scope(), run.id)
        nursery.start_soon(queue.sweep)
    await queue.sweep()
    now = await world.reload(run)
    assert now.state in {RunState.QUEUED, RunState.CANCELLED}
    assert (now.cancel_requested_at is None) == (now.state is RunState.QUEUED)


class LostClaim:
    """Lets the next claim commit, and loses its answer."""

    def __init__(self, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write, self._left = pool.write, 1
        monkeypatch.setattr(Pool, "write", self.write)

    async def write(self, query: Query, *, deadline: float = 10.0, **values: object) -> Sequence[Row]:
        """Write for real, then perhaps pretend the connection broke."""
        rows = await self._write(query, deadline=deadline, **values)
        if query.name == "claim_next_run" and self._left:
            self._left -= 1
            raise StoreUnavailable("the answer was lost")
        return rows


@pytest.mark.rule(1)
async def test_a_claim_whose_answer_was_lost_is_given_back(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no actor; the next try for its session finds it in the line again, and nothing counted."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    LostClaim(world.pool, monkeypatch)
    with pytest.raises(StoreUnavailable):
        await queue.claim_next(session.id)
    got = await claim(queue, session)
    assert (got.run.id, got.run.claim_epoch, got.run.reclaims) == (run.id, 2, 0)


# --- claims without an answer ---------------------------------------------------------------


@pytest.mark.rule(3)
async def test_a_give_back_that_arrives_late_leaves_the_next_claim_alone(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent for the first claim and executed, as by a server that froze, after the second."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    write, sent = Pool.write, list[tuple[Query, dict[str, object]]]()

    async def lose_the_first(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
        sent.append((query, values))
        rows = await write(pool, query, **values)  # type: ignore[arg-type]  # handed through
        if len(sent) == 1:
            raise StoreUnavailable("the answer was lost")
        return rows

    monkeypatch.setattr(Pool, "write", lose_the_first)
    with pytest.raises(StoreUnavailable):
        await queue.claim_next(session.id)
    mine = await claim(queue, session)
    late = [(query, values) for query, values in sent if query.name.startswith("release_unconfirmed")]
    assert late
    for query, values in late:
        await write(world.pool, query, **values)  # type: ignore[arg-type]  # handed through
    assert (await world.reload(run)).state is RunState.RUNNING
    assert not (await queue.renew([mine])).lost


@pytest.mark.rule(5)
async def test_a_claim_that_is_made_after_it_was_given_up_is_given_back(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the row longer than we for it; nobody waits a whole lease for its run."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    write = Pool.write

    async with trio.open_nursery() as nursery, row_held(world.pool, "runs", run.id):

        async def give_up(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
            monkeypatch.setattr(Pool, "write", write)
            nursery.start_soon(partial(write, pool, query, **values))  # type: ignore[arg-type]
            raise StoreUnavailable("given up, and the cancel did not get through")

        monkeypatch.setattr(Pool, "write", give_up)
        with pytest.raises(StoreUnavailable):
            await queue.claim_next(session.id)
        nursery.start_soon(queue.claim_next, session.id)  # behind the first, so it gets nothing
        await until_waiting(world.pool, 2)
    assert (await claim(queue, session)).run.claim_epoch == 2


@pytest.mark.rule(5)
@pytest.mark.parametrize("left", [timedelta(0), timedelta(seconds=8)])
async def test_a_run_that_was_lost_is_not_taken_for_a_claim_without_an_answer(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch, left: timedelta
) -> None:
    """R-F4: its lease lapses, and the sweep counts that; so also in the last tenth of the lease."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    await claim(queue, session)
    await sql(world.pool, "update runs set lease_expires_at = now() + $1", left)
    write = Pool.write

    async def lose(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
        monkeypatch.setattr(Pool, "write", write)
        await write(pool, query, **values)  # type: ignore[arg-type]  # handed through
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(Pool, "write", lose)
    with pytest.raises(StoreUnavailable):
        await queue.claim_next(session.id)
    assert await queue.claim_next(session.id) is None
    assert (await world.reload(run)).state is RunState.RUNNING


@pytest.mark.rule(5)
async def test_the_sweep_passes_over_a_row_that_somebody_writes_to(world: SeededTenant) -> None:
    """A lapsed run whose owner's write is under way is for the next sweep; the others are taken."""
    runs = [await world.run(await world.session()) for _ in range(2)]
    for run in runs:
        await world.queue().claim_next(run.session_id)
        await world.lapse(run)
    async with row_held(world.pool, "runs", runs[0].id):
        with trio.fail_after(5):
            assert await world.queue().sweep() == 1
    assert (await world.reload(runs[0])).state is RunState.RUNNING
    assert await world.queue().sweep() == 1


@pytest.mark.rule(2)
async def test_the_unique_index_makes_a_claim_lost_and_no_error(world: SeededTenant) -> None:
    """Whoever gets past the line all the same, as a hand at psql, is seen while it commits."""
    session, got = await world.session(), list[Claim | None]()
    await world.run(session, "one")
    later, lost = await world.run(session, "two"), counted(names.RUN_CLAIMS, outcome="lost")
    running = "update runs set state = 'running', owner_id = id, lease_expires_at = now() + '1 hour'"
    take = f"{running} where id = '{later.id}'"

    async def late() -> None:
        got.append(await world.queue().claim_next(session.id))

    async with trio.open_nursery() as nursery, uncommitted(world.pool, take):
        nursery.start_soon(late)
        await until_waiting(world.pool)
    assert got == [None]
    assert counted(names.RUN_CLAIMS, outcome="lost") == lost + 1


@pytest.mark.rule(4)
async def test_an_old_claim_does_not_renew_the_lease_of_a_new_one(world: SeededTenant) -> None:
    """Of the same run, by the same process: the epoch tells them apart."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    old = await claim(queue, session)
    await world.lapse(run)
    await queue.sweep()
    await claim(queue, session)
    await sql(world.pool, "update runs set lease_expires_at = now() + interval '5 seconds'")
    assert (await queue.renew([old])).lost == {old.key}
    lease = "select lease_expires_at < now() + interval '10 seconds' as kept from runs"
    assert (await sql(world.pool, lease))[0]["kept"]


@pytest.mark.rule(6)
@pytest.mark.parametrize("transition", ["create", "settle", "release", "cancel", "reclaim"])
async def test_the_doorbell_rings_at_every_transition(world: SeededTenant, transition: str) -> None:
    """With the session and the run, so that whoever hears it knows where to look."""
    session = await world.session()
    run = await world.run(session)
    got = await claim(world.queue(), session)
    async with world.pool.listen() as rings:
        match transition:
            case "create":
                run = await world.run(session)
            case "settle":
                await got.settle(RunOutcome(OutcomeStatus.DONE, 1, Usage(), (), StopReason.END_TURN))
            case "release":
                await got.settle(Interrupted())
            case "cancel":
                await world.runs.cancel(world.scope(), run.id)
            case "reclaim":
                await world.lapse(run)
                await world.queue().sweep()
        with trio.fail_after(5):
            assert await anext(rings) == Notification(session.id, run.id, world.tenant.id)


@pytest.mark.rule(2)
async def test_a_running_run_holds_back_also_those_before_it(world: SeededTenant) -> None:
    """However it came to run, as by a hand at psql: that is no lost claim, but a busy line."""
    session = await world.session()
    await world.run(session, "one")
    later, lost = await world.run(session, "two"), counted(names.RUN_CLAIMS, outcome="lost")
    await sql(
        world.pool,
        "update runs set state = 'running', owner_id = id, lease_expires_at = now() + '1 hour'"
        " where id = $1",
        later.id,
    )
    assert await world.queue().claim_next(session.id) is None
    assert counted(names.RUN_CLAIMS, outcome="lost") == lost


@pytest.mark.rule(4)
@pytest.mark.parametrize("asked_by", ["write", "heartbeat_write"])
async def test_a_deadline_counts_from_before_it_was_asked_for(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch, asked_by: str
) -> None:
    """However long the answer took: what the database granted is at least that."""
    session, queue = await world.session(), world.queue()
    await world.run(session)
    if asked_by == "heartbeat_write":
        mine = await claim(queue, session)
    ask, slow = getattr(Pool, asked_by), 0.5

    async def slowly(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
        rows: Sequence[Row] = await ask(pool, query, **values)
        await trio.sleep(slow)
        return rows

    monkeypatch.setattr(Pool, asked_by, slowly)
    asked_at = trio.current_time()
    if asked_by == "write":
        deadline = (await claim(queue, session)).lease.deadline
    else:
        mine.lease.renew((await queue.renew([mine])).asked_at)
        deadline = mine.lease.deadline
    assert deadline - asked_at < queue.lease_ttl * 0.9 + slow / 2


class Unanswered:
    """Lets the next claim commit, or not, and loses its answer; then all is as before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, made: bool) -> None:
        write = Pool.write

        async def lose(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
            monkeypatch.setattr(Pool, "write", write)
            if made:
                await write(pool, query, **values)  # type: ignore[arg-type]  # handed through
            raise StoreUnavailable("the answer was lost")

        monkeypatch.setattr(Pool, "write", lose)


@pytest.mark.rule(3)
async def test_a_give_back_takes_nothing_from_another_process(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim without an answer had not been made, and somebody else's was."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    Unanswered(monkeypatch, made=False)
    with pytest.raises(StoreUnavailable):
        await queue.claim_next(session.id)
    theirs = await claim(world.queue(), session)
    assert await queue.claim_next(session.id) is None
    assert (await world.reload(run)).claim_epoch == theirs.run.claim_epoch
    assert (await world.reload(run)).state is RunState.RUNNING


@pytest.mark.rule(11)
async def test_a_claim_given_back_after_a_cancel_ends_as_cancelled(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody executed it, and nobody will."""
    session, queue = await world.session(), world.queue()
    run = await world.run(session)
    Unanswered(monkeypatch, made=True)
    with pytest.raises(StoreUnavailable):
        await queue.claim_next(session.id)
    await world.runs.cancel(world.scope(), run.id)
    assert await queue.claim_next(session.id) is None
    assert (await world.reload(run)).state is RunState.CANCELLED
