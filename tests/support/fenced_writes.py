"""One turn of one run, and everything an executor can write for it; and how a claim gets lost.

Its one rule: a write is a function of the claim alone, so that every test can be put to every write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

import pytest

from hango.db.pool import Pool
from hango.db.queries import QUERIES, Query, Row
from hango.domain import (
    Effects,
    Interrupted,
    NewMessage,
    OutcomeStatus,
    Result,
    Run,
    RunOutcome,
    StopReason,
    TextBlock,
    ToolContext,
    ToolResultBlock,
    ToolUseBlock,
    TurnEnd,
    Usage,
    new_id,
)
from hango.errors import StoreUnavailable
from hango.store.claims import Claim
from hango.testing.plugin import SeededTenant, sql

from support.locks import Fetch

Write = Callable[[Claim], Awaitable[object]]


def question(run: Run) -> NewMessage:
    """The input of a run."""
    return NewMessage("user", run.input, run.id, 0)


def call(run: Run) -> NewMessage:
    """Turn 1: the model asks for a tool."""
    return NewMessage("assistant", (ToolUseBlock("c1", "get_time"),), run.id, 1, StopReason.TOOL_USE)


def results(run: Run) -> NewMessage:
    """Turn 1: the tool's result."""
    return NewMessage("user", (ToolResultBlock("c1", "noon"),), run.id, 1)


def answer(run: Run) -> NewMessage:
    """Turn 2: the final answer."""
    return NewMessage("assistant", (TextBlock("It is noon."),), run.id, 2, StopReason.END_TURN)


def done(run: Run) -> RunOutcome:
    """A run that answered in its second turn."""
    return RunOutcome(OutcomeStatus.DONE, 2, Usage(3, 4), (answer(run),), StopReason.END_TURN)


async def append(claim: Claim) -> object:
    """Store a turn's assistant message."""
    return await claim.append([answer(claim.run)])


async def end_turn(claim: Claim) -> object:
    """Store the boundary of the first turn."""
    return await claim.end_turn(TurnEnd(1, results(claim.run), Usage(1, 2)))


async def settle(claim: Claim) -> object:
    """End the run."""
    return await claim.settle(done(claim.run))


async def release(claim: Claim) -> object:
    """Give the run back."""
    return await claim.settle(Interrupted((answer(claim.run),)))


async def begin(claim: Claim) -> object:
    """Record that the first call of the turn is about to start."""
    return await claim.ledger.begin(context(claim.run, 0), "pay", Effects.UNSAFE)


async def finish(claim: Claim) -> None:
    """Record what the second call of the turn came to; it has been begun."""
    await claim.ledger.finish(context(claim.run, 1), Result("paid"))


def context(run: Run, ordinal: int, turn: int = 1) -> ToolContext:
    """Return the context of a call."""
    return ToolContext(run.id, turn, ordinal, f"c{ordinal}")


async def claimed_in_turn_one(world: SeededTenant) -> Claim:
    """A claim whose run has stored its first assistant message, and begun one of its calls."""
    session = await world.session()
    await world.run(session)
    claim = await world.queue().claim_next(session.id)
    assert claim is not None
    await claim.append([question(claim.run), call(claim.run)])
    await claim.ledger.begin(context(claim.run, 1), "pay", Effects.UNSAFE)
    return claim


# --- the database around it -----------------------------------------------------------------


def autocommit(world: SeededTenant) -> Fetch:
    """Return what runs statements each in a transaction of its own."""
    return partial(sql, world.pool)


async def all_rows(fetch: Fetch) -> Sequence[Sequence[Row]]:
    """All that is stored of sessions, messages, runs and effects, byte for byte."""
    return [
        await fetch(f"select {table}::text as row from {table} order by 1")  # noqa: S608  # our words
        for table in ("sessions", "messages", "runs", "tool_effects")
    ]


async def take_over(fetch: Fetch, claim: Claim, successor: str) -> None:
    """Let the lease lapse and the run be swept, and perhaps claimed again."""
    lapse = "update runs set lease_expires_at = now() - interval '1 second' where id = $1"
    await fetch(lapse, claim.run.id)
    assert len(await _ask(fetch, "reclaim_lapsed_runs", limit=9, max_reclaims=9)) == 1
    owners = {"another process": new_id(), "the same process": claim.run.owner_id}
    if successor in owners:
        claimed = await _ask(
            fetch,
            "claim_next_run",
            max_running=0,
            session_id=claim.run.session_id,
            owner_id=owners[successor],
            lease_ttl=timedelta(seconds=90),
            span_id="c1a1" * 4,
        )
        assert claimed[0]["id"] == claim.run.id


async def _ask(fetch: Fetch, name: str, **values: object) -> Sequence[Row]:
    """Run a statement of the store's, at the database's own time."""
    query = QUERIES[name]
    return await fetch(query.sql, *query.arguments({"now": None, **values}))


class LostAnswers:
    """Lets the next write commit, and loses its answer."""

    def __init__(self, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write, self.left = pool.write, 1
        monkeypatch.setattr(Pool, "write", self.write)

    async def write(self, query: Query, *, deadline: float = 10.0, **values: object) -> Sequence[Row]:
        """Write for real, then perhaps pretend the connection broke."""
        rows = await self._write(query, deadline=deadline, **values)
        if self.left:
            self.left -= 1
            raise StoreUnavailable("the answer was lost")
        return rows
