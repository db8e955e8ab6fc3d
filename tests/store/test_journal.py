"""Writes of many runs in one statement: none knows of the others, whatever becomes of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango.domain import NewMessage
from hango.errors import StateConflict
from hango.store.claims import Claim
from hango.store.journal import WRITERS
from hango.testing.plugin import SeededTenant

from support.fenced_writes import LostAnswers, autocommit, call, question, take_over
from support.locks import row_held, until_waiting


async def claimed(world: SeededTenant, count: int) -> list[Claim]:
    """Claim the runs of *count* sessions in one process."""
    queue, claims = world.queue(), []
    for _ in range(count):
        session = await world.session()
        await world.run(session)
        claims.append(await queue.claim_next(session.id))
    return [claim for claim in claims if claim is not None]


def begin(claim: Claim) -> Sequence[NewMessage]:
    """Return what the first turn of a run stores."""
    return [question(claim.run), call(claim.run)]


@attrs.define
class Batch:
    """Writes that wait in the journal until both of its writers are free."""

    world: SeededTenant
    nursery: trio.Nursery
    failed: list[Exception] = attrs.field(factory=list)

    async def add(self, write: Callable[[], Awaitable[object]]) -> trio.CancelScope:
        """Put a write in the line; return what cancels it."""
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    await write()
                except StateConflict as error:
                    self.failed.append(error)

        self.nursery.start_soon(run)
        await wait_all_tasks_blocked()
        return scope

    async def append(self, claim: Claim) -> trio.CancelScope:
        """Put the first messages of a run in the line."""
        return await self.add(lambda: claim.append(begin(claim)))

    async def stored(self, claim: Claim) -> list[int]:
        """Return the numbers of the messages of the claim's session."""
        scope = self.world.scope()
        return [m.seq for m in await self.world.sessions.messages(scope, claim.run.session_id)]


@asynccontextmanager
async def batch(
    world: SeededTenant, nursery: trio.Nursery, busy: Sequence[Claim]
) -> AsyncIterator[Batch]:
    """Keep both writers busy with *busy* in the context; at its end what was added is sent."""
    assert len(busy) == WRITERS
    async with AsyncExitStack() as held:
        for claim in busy:
            await held.enter_async_context(row_held(world.pool, "sessions", claim.run.session_id))
            nursery.start_soon(claim.append, begin(claim))
        await until_waiting(world.pool, WRITERS)
        yield Batch(world, nursery)


@pytest.mark.rule(7)
async def test_what_comes_while_both_writers_are_busy_is_one_statement(world: SeededTenant) -> None:
    """Each is answered as if it had been alone."""
    *busy, one, two, three = await claimed(world, WRITERS + 3)
    async with trio.open_nursery() as nursery, batch(world, nursery, busy) as line:
        for claim in (one, two, three):
            await line.append(claim)
        before = world.pool.statements
    assert world.pool.statements == before + 1
    assert [await line.stored(claim) for claim in (*busy, one, two, three)] == [[1, 2]] * 5
    assert not line.failed


@pytest.mark.rule(3)
async def test_a_lost_claim_fails_alone(world: SeededTenant) -> None:
    """The fence is each item's own."""
    *busy, lost, kept = await claimed(world, WRITERS + 2)
    async with trio.open_nursery() as nursery, batch(world, nursery, busy) as line:
        await line.append(lost)
        await line.append(kept)
        await take_over(autocommit(world), lost, "another process")
    assert len(line.failed) == 1
    assert (await line.stored(lost), await line.stored(kept)) == ([], [1, 2])


@pytest.mark.rule(28)
@pytest.mark.parametrize("table", ["sessions", "runs"])
async def test_a_locked_session_holds_up_only_its_own_write(
    world: SeededTenant, table: Literal["sessions", "runs"]
) -> None:
    """The others are stored while it waits; it is stored as soon as it can be."""
    *busy, locked, free = await claimed(world, WRITERS + 2)
    row = locked.run.session_id if table == "sessions" else locked.run.id
    async with trio.open_nursery() as nursery, row_held(world.pool, table, row):
        async with batch(world, nursery, busy) as line:
            await line.append(locked)
            await line.append(free)
        with trio.fail_after(5):  # sooner than the server gives up waiting for a lock
            while not await line.stored(free):
                await trio.lowlevel.checkpoint()
        assert await line.stored(locked) == []
    assert not line.failed
    assert await line.stored(locked) == [1, 2]


@pytest.mark.rule(3)
async def test_what_the_database_refuses_takes_nobody_down(world: SeededTenant) -> None:
    """A message that is there already is one item's matter."""
    *busy, again, fresh = await claimed(world, WRITERS + 2)
    messages = begin(again)
    await again.append(messages)
    async with trio.open_nursery() as nursery, batch(world, nursery, busy) as line:
        await line.add(lambda: again.append(messages))
        await line.append(fresh)
    assert not line.failed
    assert (await line.stored(again), await line.stored(fresh)) == ([1, 2], [1, 2])


@pytest.mark.rule(3)
async def test_a_write_cancelled_in_the_line_is_not_sent(world: SeededTenant) -> None:
    """It was not sent yet, so it never is; the others are."""
    *busy, cancelled, kept = await claimed(world, WRITERS + 2)
    async with trio.open_nursery() as nursery, batch(world, nursery, busy) as line:
        scope = await line.append(cancelled)
        await line.append(kept)
        scope.cancel()
        await wait_all_tasks_blocked()
    assert (await line.stored(cancelled), await line.stored(kept)) == ([], [1, 2])


@pytest.mark.rule(26)
async def test_two_writes_of_one_session_go_one_after_the_other(world: SeededTenant) -> None:
    """A statement stores one item a session, so that each has its own numbers."""
    *busy, claim = await claimed(world, WRITERS + 1)
    first, second = begin(claim)
    async with trio.open_nursery() as nursery, batch(world, nursery, busy) as line:
        await line.add(lambda: claim.append([first]))
        await line.add(lambda: claim.append([second]))
    assert await line.stored(claim) == [1, 2]


@pytest.mark.rule(3)
async def test_a_batch_whose_answer_was_lost_is_stored_once(
    world: SeededTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its writes is sent again alone, and finds itself stored."""
    *busy, one, two = await claimed(world, WRITERS + 2)
    async with trio.open_nursery() as nursery, batch(world, nursery, busy) as line:
        await line.append(one)
        await line.append(two)
        LostAnswers(world.pool, monkeypatch)
    assert not line.failed
    assert [await line.stored(claim) for claim in (*busy, one, two)] == [[1, 2]] * 4
