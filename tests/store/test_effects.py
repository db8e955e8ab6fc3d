"""The ledger: what was begun and what came of it is told to whoever has the run, and to nobody else."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio

from hango.codec import clean_text
from hango.db.pool import Pool
from hango.db.queries import Query, Row
from hango.domain import EarlierCall, Effects, Ledger, Result, TurnEnd, Usage, new_id
from hango.errors import StateConflict
from hango.store.claims import Claim
from hango.testing.plugin import SeededTenant, sql

from support.fenced_writes import (
    LostAnswers,
    autocommit,
    claimed_in_turn_one,
    context,
    end_turn,
    results,
    take_over,
)
from support.locks import row_held, until_waiting

pytestmark = pytest.mark.rule(9)

RESULTS = {
    "plain": Result("paid"),
    "for a person": Result("paid", "You have paid."),
    "nothing for a person": Result("paid", ""),
    "an error": Result("declined", "No.", is_error=True),
    "odd text": Result('\\u0000 "quoted"\n\t\\ 東京 🙂 \u2028', "\ufffd"),
    "not clean": Result("a\0b\ud800", "\udfff"),
    "long": Result("x" * 262_144, "é" * 131_072),
}


async def taken_over(world: SeededTenant, claim: Claim) -> Claim:
    """Let the claim be lost, and another process make the next one."""
    await take_over(autocommit(world), claim, "nobody")
    await sql(world.pool, "update runs set not_before = null")  # a second lapse in a row has a pause
    after = await world.queue().claim_next(claim.run.session_id)
    assert after is not None
    return after


async def stored(world: SeededTenant) -> Sequence[Row]:
    """All that the ledger holds of calls, in order; the one that is always there is left out."""
    columns = "turn, ordinal, call_id, tool, effects, state, result::text as result"
    return await sql(
        world.pool,
        f"select {columns} from tool_effects where ordinal <> 1 order by turn, ordinal",  # noqa: S608  # our own words
    )


async def test_a_first_beginning_is_stored_as_it_is(world: SeededTenant) -> None:
    """None: nobody has begun the call, so its body may run."""
    claim = await claimed_in_turn_one(world)
    ledger: Ledger = claim.ledger  # what it has to fit
    assert await ledger.begin(context(claim.run, 0), "pay", Effects.KEYED) is None
    assert [tuple(row.values()) for row in await stored(world)] == [
        (1, 0, "c0", "pay", "keyed", "started", None)
    ]


async def test_a_beginning_and_an_end_are_one_statement_each(world: SeededTenant) -> None:
    """They take as long as a database needs for one."""
    claim = await claimed_in_turn_one(world)
    before = world.pool.statements
    await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    assert world.pool.statements == before + 1
    await claim.ledger.finish(context(claim.run, 0), Result("paid"))
    assert world.pool.statements == before + 2


@pytest.mark.parametrize("effects", [Effects.KEYED, Effects.UNSAFE])
async def test_a_later_claim_learns_what_was_begun(world: SeededTenant, effects: Effects) -> None:
    """Every time it asks, until there is a result; how the tool is declared now changes nothing."""
    claim = await claimed_in_turn_one(world)
    await claim.ledger.begin(context(claim.run, 0), "pay", effects)
    before = await stored(world)
    for _ in range(2):
        claim = await taken_over(world, claim)
        for now in (Effects.KEYED, Effects.UNSAFE):
            earlier = await claim.ledger.begin(context(claim.run, 0), "pay_now", now)
            assert earlier == EarlierCall(effects)
    assert await stored(world) == before


@pytest.mark.rule(20)
@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS.keys())
async def test_a_result_is_restored_as_it_was(world: SeededTenant, result: Result) -> None:
    """To the last field and character; what Postgres cannot hold is replaced, as everywhere."""
    claim = await claimed_in_turn_one(world)
    await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    await claim.ledger.finish(context(claim.run, 0), result)
    claim = await taken_over(world, claim)
    for_user = None if result.for_user is None else clean_text(result.for_user)
    clean = attrs.evolve(result, for_llm=clean_text(result.for_llm), for_user=for_user)
    earlier = await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    assert earlier == EarlierCall(Effects.UNSAFE, clean)


async def test_a_call_begun_by_an_earlier_claim_may_be_finished_by_a_later_one(
    world: SeededTenant,
) -> None:
    """A keyed call that runs again comes to a result under the claim it runs under."""
    claim = await claimed_in_turn_one(world)
    await claim.ledger.begin(context(claim.run, 0), "pay", Effects.KEYED)
    claim = await taken_over(world, claim)
    await claim.ledger.begin(context(claim.run, 0), "pay", Effects.KEYED)
    await claim.ledger.finish(context(claim.run, 0), Result("paid"))
    earlier = await claim.ledger.begin(context(claim.run, 0), "pay", Effects.KEYED)
    assert earlier == EarlierCall(Effects.KEYED, Result("paid"))


# --- lost answers ---------------------------------------------------------------------------


async def test_a_beginning_sent_again_does_not_meet_itself(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was lost, and it was not run: it may."""
    claim = await claimed_in_turn_one(world)
    lost = LostAnswers(world.pool, monkeypatch)
    assert await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE) is None
    assert lost.left == 0
    assert len(await stored(world)) == 1


async def test_an_earlier_beginning_is_met_also_when_sent_again(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim whose answer was lost does not take another one's beginning for its own."""
    claim = await claimed_in_turn_one(world)
    await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    claim = await taken_over(world, claim)
    LostAnswers(world.pool, monkeypatch)
    earlier = await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    assert earlier == EarlierCall(Effects.UNSAFE)


async def test_a_second_beginning_of_one_claim_is_a_second_one(world: SeededTenant) -> None:
    """Who begins is told by the beginning itself, not by the claim: nothing starts twice by mistake."""
    claim = await claimed_in_turn_one(world)
    assert await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE) is None
    again = await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    assert again == EarlierCall(Effects.UNSAFE)


@attrs.define
class Sent:
    """Keeps the last write that was sent, to be sent again."""

    write: tuple[Query, dict[str, object]] | None = None

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch what is sent from now on."""
        write = Pool.write

        async def watched(pool: Pool, query: Query, **values: object) -> Sequence[Row]:
            self.write = (query, values)
            return await write(pool, query, **values)  # type: ignore[arg-type]  # handed through

        monkeypatch.setattr(Pool, "write", watched)

    async def again(self, pool: Pool) -> Sequence[Row]:
        """Send it again, as a server does that was slow to read it."""
        assert self.write is not None
        query, values = self.write
        values.pop("deadline", None)
        return await sql(pool, query.sql, *query.arguments(values))


async def test_a_beginning_that_arrives_late_undoes_no_end(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A try that was given up may still be done by the server, after the call has finished."""
    claim, sent = await claimed_in_turn_one(world), Sent()
    sent.watch(monkeypatch)
    await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    monkeypatch.undo()
    await claim.ledger.finish(context(claim.run, 0), Result("paid"))
    before = await stored(world)
    await sent.again(world.pool)
    assert await stored(world) == before


async def test_two_tries_that_wait_together_are_one_beginning(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sees what the first committed while both waited for the fence."""
    claim, sent = await claimed_in_turn_one(world), Sent()
    answers: list[object] = []
    sent.watch(monkeypatch)

    async def begin() -> None:
        answers.append(await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE))

    async def again() -> None:
        answers.extend(row["new"] for row in await sent.again(world.pool))

    async with trio.open_nursery() as nursery, row_held(world.pool, "runs", claim.run.id):
        nursery.start_soon(begin)
        await until_waiting(world.pool, 1)
        monkeypatch.undo()
        nursery.start_soon(again)
        await until_waiting(world.pool, 2)
    assert sorted(map(str, answers)) == ["None", "True"]
    assert len(await stored(world)) == 1


# --- only for the open turn -----------------------------------------------------------------


@pytest.mark.rule(3)
@pytest.mark.parametrize("turn", [1, 3])
async def test_only_calls_of_the_open_turn_are_recorded(world: SeededTenant, turn: int) -> None:
    """What belongs to a finished turn, or to one that has not come, is a conflict."""
    claim = await claimed_in_turn_one(world)
    await end_turn(claim)
    before = await stored(world)
    with pytest.raises(StateConflict):
        await claim.ledger.begin(context(claim.run, 0, turn), "pay", Effects.UNSAFE)
    assert await stored(world) == before


@pytest.mark.rule(3)
async def test_a_result_of_a_finished_turn_is_refused(world: SeededTenant) -> None:
    """An end that comes after its turn's changes nothing."""
    claim = await claimed_in_turn_one(world)
    await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
    await end_turn(claim)
    before = await stored(world)
    with pytest.raises(StateConflict):
        await claim.ledger.finish(context(claim.run, 0), Result("paid"))
    assert await stored(world) == before


@pytest.mark.rule(3)
async def test_a_claim_records_for_its_own_run_only(world: SeededTenant) -> None:
    """A call of another run is refused before anything is sent."""
    claim = await claimed_in_turn_one(world)
    other = attrs.evolve(context(claim.run, 0), run_id=new_id())
    before = world.pool.statements
    with pytest.raises(StateConflict):
        await claim.ledger.begin(other, "pay", Effects.UNSAFE)
    assert world.pool.statements == before


async def test_the_ledger_locks_no_session(world: SeededTenant) -> None:
    """Calls of a turn do not wait for whoever writes messages to its session."""
    claim = await claimed_in_turn_one(world)
    async with row_held(world.pool, "sessions", claim.run.session_id):
        with trio.fail_after(20):
            await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)
            await claim.ledger.finish(context(claim.run, 0), Result("paid"))


async def test_the_calls_of_a_turn_are_recorded_side_by_side(world: SeededTenant) -> None:
    """Thirty calls at once, and the turn's end after them: no deadlock, each its own."""
    claim = await claimed_in_turn_one(world)

    async def one(ordinal: int) -> None:
        assert await claim.ledger.begin(context(claim.run, ordinal), "pay", Effects.UNSAFE) is None
        await claim.ledger.finish(context(claim.run, ordinal), Result(f"paid {ordinal}"))

    async with trio.open_nursery() as nursery:
        for ordinal in range(2, 32):
            nursery.start_soon(one, ordinal)
    await claim.end_turn(TurnEnd(1, results(claim.run), Usage()))
    assert [row["result"] for row in await stored(world)] == [
        f'{{"for_llm":"paid {n}","for_user":null,"is_error":false}}' for n in range(2, 32)
    ]
