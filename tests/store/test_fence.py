"""Nobody writes for a run they no longer own, however late the write arrives."""

from __future__ import annotations

from uuid import UUID

import attrs
import pytest
import trio

from hango.domain import Interrupted, NewMessage, ToolResultBlock, TurnEnd, Usage
from hango.errors import StateConflict
from hango.store.claims import Claim
from hango.store.transcript import SessionTranscript
from hango.telemetry import names
from hango.testing.plugin import SeededTenant, sql

from support.counters import counted
from support.fenced_writes import (
    LostAnswers,
    Write,
    all_rows,
    append,
    autocommit,
    begin,
    call,
    claimed_in_turn_one,
    end_turn,
    finish,
    question,
    release,
    results,
    settle,
    take_over,
)
from support.locks import row_held, until_waiting

# All an executor can write; those that store messages lock their session before their run.
WRITES = pytest.mark.parametrize("write", [append, end_turn, settle, release, begin, finish])
OF_MESSAGES = pytest.mark.parametrize("write", [append, end_turn, settle, release])
SUCCESSORS = pytest.mark.parametrize("successor", ["another process", "the same process", "nobody"])


@pytest.mark.rule(3)
@WRITES
@SUCCESSORS
async def test_a_stale_write_changes_nothing(world: SeededTenant, write: Write, successor: str) -> None:
    """A write after the claim is lost raises StateConflict, whoever has the run now."""
    claim, fetch = await claimed_in_turn_one(world), autocommit(world)
    await take_over(fetch, claim, successor)
    before, rejected = await all_rows(fetch), counted(names.FENCE_REJECTED)
    with pytest.raises(StateConflict):
        await write(claim)
    assert await all_rows(fetch) == before
    assert counted(names.FENCE_REJECTED) == rejected + 1
    assert claim.lease.lost


async def refused(write: Write, claim: Claim, conflicts: list[StateConflict]) -> None:
    """Write; a conflict is put into the list."""
    try:
        await write(claim)
    except StateConflict as error:
        conflicts.append(error)


@pytest.mark.rule(3)
@OF_MESSAGES
@SUCCESSORS
async def test_a_parked_write_changes_nothing(
    world: SeededTenant, write: Write, successor: str
) -> None:
    """A write that waited for its session row while the claim was lost comes to nothing."""
    claim, fetch = await claimed_in_turn_one(world), autocommit(world)
    conflicts: list[StateConflict] = []
    async with trio.open_nursery() as nursery, row_held(world.pool, "sessions", claim.run.session_id):
        nursery.start_soon(refused, write, claim, conflicts)
        await until_waiting(world.pool)
        await take_over(fetch, claim, successor)
        before = await all_rows(fetch)
    assert len(conflicts) == 1
    assert await all_rows(fetch) == before


@pytest.mark.rule(3)
@WRITES
@SUCCESSORS
async def test_a_write_waiting_for_its_run_sees_what_the_sweep_did(
    world: SeededTenant, write: Write, successor: str
) -> None:
    """The fence is taken with a lock: a change of owner committed during the wait is seen."""
    claim = await claimed_in_turn_one(world)
    conflicts: list[StateConflict] = []
    async with trio.open_nursery() as nursery, row_held(world.pool, "runs", claim.run.id) as fetch:
        nursery.start_soon(refused, write, claim, conflicts)
        await until_waiting(world.pool)
        await take_over(fetch, claim, successor)
        before = await all_rows(fetch)
    assert len(conflicts) == 1
    assert await all_rows(autocommit(world)) == before


@pytest.mark.rule(3)
@WRITES
@pytest.mark.parametrize("column", ["owner_id = gen_random_uuid()", "claim_epoch = claim_epoch + 1"])
async def test_the_fence_names_both_owner_and_epoch(
    world: SeededTenant, write: Write, column: str
) -> None:
    """Either alone, changed by whatever may come, closes it."""
    claim = await claimed_in_turn_one(world)
    await sql(world.pool, f"update runs set {column}")  # noqa: S608  # our own words
    before = await all_rows(autocommit(world))
    with pytest.raises(StateConflict):
        await write(claim)
    assert await all_rows(autocommit(world)) == before


@pytest.mark.rule(3)
@WRITES
async def test_a_write_whose_answer_was_lost_is_done_once(
    world: SeededTenant, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent twice, it is stored once and reported as success."""
    control = await claimed_in_turn_one(world)
    await write(control)
    claim = await claimed_in_turn_one(world)
    LostAnswers(world.pool, monkeypatch)
    await write(claim)

    columns = "state, resume_turn, iterations, usage::text, stop_reason"
    count = "(select count(*) from messages where session_id = $2) as messages"
    effects = (
        "(select array_agg((ordinal, state, result::text) order by ordinal) from tool_effects"
        " where run_id = $1) as effects"
    )
    shape = f"select {columns}, {count}, {effects} from runs where id = $1"  # noqa: S608  # our own words
    rows = [await sql(world.pool, shape, c.run.id, c.run.session_id) for c in (control, claim)]
    assert dict(rows[0][0]) == dict(rows[1][0])


@pytest.mark.rule(3)
@pytest.mark.parametrize("write", [settle, release])
async def test_a_lost_answer_is_found_also_after_progress_that_reset_the_reclaims(
    world: SeededTenant, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run taken back before, that ended a turn since: its end is its own, and no sweep's."""
    session = await world.session()
    run = await world.run(session)
    await sql(world.pool, "update runs set reclaims = 3")
    claim = await world.queue().claim_next(session.id)
    assert claim is not None
    await claim.append([question(run), call(run)])
    await end_turn(claim)
    LostAnswers(world.pool, monkeypatch)
    await write(claim)


@pytest.mark.rule(3)
async def test_a_transcript_stays_whole_when_an_answer_is_lost(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored without an answer is read back, so that nothing is missing in memory."""
    claim = await claimed_in_turn_one(world)
    transcript = await SessionTranscript.open(claim, await claim.load())
    LostAnswers(world.pool, monkeypatch)
    await transcript.end_turn(TurnEnd(1, results(claim.run), Usage(1, 2)))
    assert [m.seq for m in transcript.messages] == [1, 2, 3]


@pytest.mark.rule(3)
async def test_a_turn_is_ended_in_order(world: SeededTenant) -> None:
    """A boundary that is not the next one is refused, even by the owner."""
    claim = await claimed_in_turn_one(world)
    skipped = TurnEnd(2, NewMessage("user", (ToolResultBlock("c1", "x"),), claim.run.id, 2), Usage())
    with pytest.raises(StateConflict):
        await claim.end_turn(skipped)


@pytest.mark.rule(3)
@pytest.mark.parametrize("write", [append, settle, release])
async def test_every_write_names_the_turn_it_expects(world: SeededTenant, write: Write) -> None:
    """One that was sent before a boundary and arrives after it changes nothing."""
    claim = await claimed_in_turn_one(world)
    await end_turn(claim)
    claim._fence.resume_turn = 0
    before = await all_rows(autocommit(world))
    with pytest.raises(StateConflict):
        await write(claim)
    assert await all_rows(autocommit(world)) == before


@pytest.mark.rule(4)
async def test_a_boundary_never_shortens_a_lease(world: SeededTenant) -> None:
    """Another process's longer lease, or a clock set back, is no reason to lapse sooner."""
    claim = await claimed_in_turn_one(world)
    await sql(world.pool, "update runs set lease_expires_at = now() + interval '1 hour'")
    await end_turn(claim)
    left = await sql(
        world.pool, "select lease_expires_at > now() + interval '50 minutes' as kept from runs"
    )
    assert left[0]["kept"]


@pytest.mark.rule(7)
async def test_a_turn_boundary_is_one_statement(world: SeededTenant) -> None:
    """Results, resume_turn, iterations, usage and the lease arrive together."""
    claim = await claimed_in_turn_one(world)
    await sql(
        world.pool,
        "update runs set lease_expires_at = now() + interval '1 second', reclaims = 3 where id = $1",
        claim.run.id,
    )
    claim._fence.reclaims, before = 3, world.pool.statements
    await end_turn(claim)
    assert world.pool.statements == before + 1
    stored = (
        await sql(
            world.pool,
            "select resume_turn, iterations, reclaims, usage::text as usage,"
            " lease_expires_at > now() + interval '80 seconds' as renewed from runs where id = $1",
            claim.run.id,
        )
    )[0]
    assert (stored["resume_turn"], stored["iterations"], stored["reclaims"]) == (1, 1, 0)
    assert stored["renewed"]
    assert '"input_tokens":1' in stored["usage"]


@pytest.mark.rule(3)
async def test_what_an_old_claim_had_stored_does_not_make_it_the_owner_again(
    world: SeededTenant,
) -> None:
    """The same process has the run under a new epoch: a repeat by the old claim is no success."""
    claim = await claimed_in_turn_one(world)
    await take_over(autocommit(world), claim, "the same process")
    repeated = NewMessage("user", claim.run.input, claim.run.id, 0)
    first = (await world.sessions.messages(world.scope(), claim.run.session_id))[0]
    with pytest.raises(StateConflict):
        await claim.append([attrs.evolve(repeated, id=first.id)])


@pytest.mark.rule(11)
async def test_a_release_after_the_lease_is_none_also_for_who_had_the_run_before(
    world: SeededTenant,
) -> None:
    """That this process gave the run back once says nothing of now."""
    claim = await claimed_in_turn_one(world)
    await claim.settle(Interrupted())
    again = await world.queue(owner_id=claim.run.owner_id).claim_next(claim.run.session_id)
    assert again is not None
    await world.lapse(again.run)
    with pytest.raises(StateConflict):
        await again.settle(Interrupted())


@pytest.mark.rule(7)
async def test_the_end_of_a_run_is_one_statement(world: SeededTenant) -> None:
    """The final message and the terminal state arrive together."""
    claim = await claimed_in_turn_one(world)
    await end_turn(claim)
    before = world.pool.statements
    await settle(claim)
    assert world.pool.statements == before + 1
    run = await world.reload(claim.run)
    messages = await world.sessions.messages(world.scope(), run.session_id)
    assert run.state == "succeeded"
    assert run.final_message_id == messages[-1].id
    assert run.resume_turn == run.iterations == 2


@pytest.mark.rule(11)
async def test_a_release_stores_no_partial(world: SeededTenant) -> None:
    """A run that will be re-driven keeps nothing of the turn that was cut short."""
    claim = await claimed_in_turn_one(world)
    assert await release(claim) == "queued"
    messages = await world.sessions.messages(world.scope(), claim.run.session_id)
    assert [m.turn for m in messages] == [0, 1]


@pytest.mark.rule(11)
async def test_an_interrupted_run_that_was_cancelled_ends_with_what_had_arrived(
    world: SeededTenant,
) -> None:
    """The row says which: cancel was asked for, so the settle is terminal and stores the partial."""
    claim = await claimed_in_turn_one(world)
    await world.runs.cancel(world.scope(), claim.run.id)
    assert await release(claim) == "cancelled"
    run = await world.reload(claim.run)
    messages = await world.sessions.messages(world.scope(), run.session_id)
    assert [m.seq for m in messages] == [1, 2, 3]
    assert run.final_message_id == messages[-1].id


@pytest.mark.rule(11)
async def test_an_interrupted_settle_requires_the_lease(world: SeededTenant) -> None:
    """After the lease has lapsed the sweep decides, not the executor."""
    claim = await claimed_in_turn_one(world)
    await world.lapse(claim.run)
    with pytest.raises(StateConflict):
        await release(claim)


@pytest.mark.rule(26)
async def test_seq_has_no_gap_after_rejected_writes(world: SeededTenant) -> None:
    """A rejected write takes no number."""
    claim = await claimed_in_turn_one(world)
    await take_over(autocommit(world), claim, "nobody")
    for write in (append, end_turn, settle, release):
        with pytest.raises(StateConflict):
            await write(claim)
    again = await world.queue().claim_next(claim.run.session_id)
    assert again is not None
    await end_turn(again)
    messages = await world.sessions.messages(world.scope(), claim.run.session_id)
    assert [m.seq for m in messages] == [1, 2, 3]


async def test_ids_are_unused_until_stored() -> None:
    """Each new message has an id of its own, so that a repeat can be told from another."""
    ids: set[UUID] = {NewMessage("user", ()).id for _ in range(100)}
    assert len(ids) == 100
