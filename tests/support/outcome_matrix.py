"""Why an execution ends: what can happen to it, in each phase it can be in, and what must come of it.

Its one rule: what must come of it follows from the rules of the design, named beside each row; the code
is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from uuid import UUID

import attrs
import pytest
import trio

from hango.actors import ExecutionBuilder, PreparedRun
from hango.actors.execution import NotHere
from hango.db.pool import Pool
from hango.db.queries import Query
from hango.db.queries import Row as StoredRow
from hango.domain import (
    Effects,
    ErrorCode,
    Message,
    ProviderRequest,
    RunOutcome,
    RunState,
    TextBlock,
    ToolContext,
)
from hango.errors import StoreUnavailable
from hango.store.claims import Claim
from hango.store.journal import Item, Journal, Statement
from hango.testing import FakeProvider
from hango.tools import Tool, tool

from support.journal_plugin import asked
from support.pausing_provider import PausingProvider


class Cause(StrEnum):
    """What happens, to all that a process executes."""

    CANCEL = "cancel"  # it is committed, and its doorbell rings
    DRAIN = "drain"  # the process drains, and the time it gives to running turns is up
    DEADLINE = "deadline"  # the execution has taken as long as it may
    LEASE = "lease"  # nobody has renewed the lease; it lapses, and a peer sweeps
    AWAY = "away"  # the process loses Postgres, for ten seconds


class Phase(StrEnum):
    """Where the execution is when it happens."""

    QUEUED = "queued"  # no execution: the process has no free slot
    TOLD = "told"  # claimed and told to the session's actor; nothing has been read
    STREAMING = "streaming"  # the first answer has begun to arrive
    IN_TOOL = "in tool"  # the first answer is stored, its tool runs
    TURN_WRITE = "turn write"  # the boundary of the first turn is committed, its answer on its way
    FINAL_WRITE = "final write"  # the last answer is complete, the write that ends the run not yet sent
    WRITTEN = "written"  # that write is committed, and its answer on its way


EXECUTED = tuple(phase for phase in Phase if phase is not Phase.QUEUED)

# A run asks the model, calls a tool, asks the model again, and is done.  A cell says how it ends, how
# often a sweep takes it back, and how often the model is asked, by whoever executes it: a healthy peer
# goes on with what is not over.  ``cancel`` is cancelled, ``late`` failed with ``deadline_exceeded``; a
# star says that what had arrived of an answer is stored as partial.
_TABLE = """
                | queued     | told       | streaming    | in tool, turn write | final write | written
# 11: terminal at once, or cut short; a run that is complete is not undone
cancel          | cancel 0 0 | cancel 0 0 | cancel 0 1 * | cancel 0 1          | done 0 2    | done 0 2
# 8, 16: given back in mid-turn, without what had arrived; a stored answer is not bought again
drain           | done 0 2   | done 0 2   | done 0 3     | done 0 2            | done 0 2    | done 0 2
# 10: it is of one execution, and begins when that has been told of it; a complete run is in time
deadline        | done 0 2   | done 0 2   | late 0 1 *   | late 0 1            | done 0 2    | done 0 2
# 3, 4, 5: who has lost it writes nothing, not even the last answer
lease           | done 0 2   | done 1 2   | done 1 3     | done 1 2            | done 1 3    | done 0 2
# section 2, step 5: a write is tried until the local deadline; a store error fails no run
away            | done 0 2   | done 0 2   | done 0 2     | done 0 2            | done 0 2    | done 0 2
# 11: cancel and anything that cuts the execution short is cancelled; 5: at the sweep, too
cancel+drain    | cancel 0 0 | cancel 0 0 | cancel 0 1 * | cancel 0 1          | done 0 2    | done 0 2
cancel+deadline | cancel 0 0 | cancel 0 0 | cancel 0 1 * | cancel 0 1          | done 0 2    | done 0 2
cancel+lease    | cancel 0 0 | cancel 1 0 | cancel 1 1   | cancel 1 1          | cancel 1 2  | done 0 2
cancel+away     | cancel 0 0 | cancel 0 0 | cancel 0 1 * | cancel 0 1          | done 0 2    | done 0 2
# who cannot hear of it, may ask the model, or take the whole answer, before he does
away+cancel     | cancel 0 0 | cancel 0 1 | cancel 0 1   | cancel 0 1          | done 0 2    | done 0 2
# 10: a process that ends hands over, and the next execution has a deadline of its own
drain+deadline  | done 0 2   | done 0 2   | done 0 3     | done 0 2            | done 0 2    | done 0 2
drain+lease     | done 0 2   | done 1 2   | done 1 3     | done 1 2            | done 1 3    | done 0 2
# a process that ends waits five seconds for its last words; then the lease tells
drain+away      | done 0 2   | done 1 2   | done 1 3     | done 1 2            | done 1 3    | done 0 2
# 3: a failure, too, is written by nobody but the owner
deadline+lease  | done 0 2   | done 1 2   | done 1 3     | done 1 2            | done 1 3    | done 0 2
deadline+away   | done 0 2   | done 0 2   | late 0 1 *   | late 0 1            | done 0 2    | done 0 2
lease+away      | done 0 2   | done 1 2   | done 1 3     | done 1 2            | done 1 3    | done 0 2
"""

_WRITES = {"end_turn": Phase.TURN_WRITE, "settle_run": Phase.WRITTEN}
_ENDS = {
    "done": (RunState.SUCCEEDED, None),
    "cancel": (RunState.CANCELLED, None),
    "late": (RunState.FAILED, ErrorCode.DEADLINE_EXCEEDED),
}


@attrs.frozen
class End:
    """What comes of a run.

    Attributes:
        reclaims: how often a sweep took it back.
        calls: how often a provider was asked.
        kept: whether an answer is stored that had only begun to arrive.
    """

    state: RunState
    error_code: ErrorCode | None
    reclaims: int
    calls: int
    kept: bool


@attrs.frozen
class Row:
    """What happens, at one instant and in this order, and what must come of it in each phase."""

    whys: tuple[Cause, ...]
    ends: Mapping[Phase, End]

    def __str__(self) -> str:
        """Name it, for the list of tests."""
        return "+".join(self.whys)


def read_table() -> list[Row]:
    """Read the table; of two things that happen either is the first once."""
    (_, *headers), *lines = [
        [part.strip() for part in line.split("|")]
        for line in _TABLE.strip("\n").splitlines()
        if not line.startswith("#")
    ]
    rows: dict[tuple[Cause, ...], Row] = {}
    for names, *cells in lines:
        whys = tuple(Cause(name) for name in names.split("+"))
        ends = {
            Phase(phase): _end(cell)
            for header, cell in zip(headers, cells, strict=True)
            for phase in header.split(", ")
        }
        rows[whys] = Row(whys, ends)
        rows.setdefault(whys[::-1], Row(whys[::-1], ends))
    return list(rows.values())


def _end(cell: str) -> End:
    word, reclaims, calls, *kept = cell.split()
    return End(*_ENDS[word], int(reclaims), int(calls), kept == ["*"])


# --- stopping executions --------------------------------------------------------------------


@attrs.define
class StopPoints:
    """Where executions stop, deaf to all that happens meanwhile, so that they meet it at one instant.

    Each stops once, in the phase that its prompt begins with.

    Attributes:
        awaited: the phases in which one is to stop.
        stopped: those in which one has.
        all_stopped: set once nobody is missing.
        go_on: set it to let them go on.
        answers_lost: the answers that are on their way never arrive.
        taken_back: how often a sweep took each run back.
    """

    awaited: Collection[Phase] = EXECUTED
    stopped: set[Phase] = attrs.field(factory=set, init=False)
    all_stopped: trio.Event = attrs.field(factory=trio.Event, init=False)
    go_on: trio.Event = attrs.field(factory=trio.Event, init=False)
    answers_lost: bool = attrs.field(default=False, init=False)
    taken_back: Counter[UUID] = attrs.field(factory=Counter, init=False)
    _names: dict[UUID, str] = attrs.field(factory=dict, init=False)

    async def at(self, phase: Phase, name: str | None) -> bool:
        """Stop the run of that name here, if this is where; return whether it was."""
        if name != phase.name or phase in self.stopped:
            return False
        self.stopped.add(phase)
        if len(self.stopped) == len(self.awaited):
            self.all_stopped.set()
        with trio.CancelScope(shield=True):
            await self.go_on.wait()
        return True

    def stand_in(self, patch: pytest.MonkeyPatch) -> None:
        """Come along also where only hango's own code does."""
        build, write, store = ExecutionBuilder.build, Pool.write, Journal.write

        async def own_build(
            workshop: ExecutionBuilder, claim: Claim, known: Sequence[Message]
        ) -> PreparedRun | RunOutcome | NotHere:
            (said,) = claim.run.input
            assert isinstance(said, TextBlock)
            self._names[claim.run.id] = said.text.split()[0]
            await self.at(Phase.TOLD, self._names[claim.run.id])
            return await build(workshop, claim, known)

        async def own_store(
            journal: Journal, pool: Pool, statement: Statement, item: Item, *, deadline: float
        ) -> StoredRow | None:
            made = statement.alone.name
            name = self._name(item.values["run_id"]) if made in _WRITES else None
            if made == "settle_run":
                await self.at(Phase.FINAL_WRITE, name)
            row = await store(journal, pool, statement, item, deadline=deadline)
            if name is not None and await self.at(_WRITES[made], name) and self.answers_lost:
                raise StoreUnavailable("the answer was lost")
            return row

        async def own_write(pool: Pool, query: Query, **values: object) -> Sequence[StoredRow]:
            rows = await write(pool, query, **values)  # type: ignore[arg-type]  # handed through
            if query.name == "reclaim_lapsed_runs":
                self.taken_back.update(row["id"] for row in rows)
            return rows

        patch.setattr(ExecutionBuilder, "build", own_build)
        patch.setattr(Journal, "write", own_store)
        patch.setattr(Pool, "write", own_write)

    def _name(self, run_id: object) -> str:
        assert isinstance(run_id, UUID)
        return self._names[run_id]

    def model(self, provider: FakeProvider) -> PausingProvider:
        """Make a model in whose answers executions stop, once something has arrived."""

        async def stop(request: ProviderRequest) -> None:
            (name, *_), _ = asked(request)
            await self.at(Phase.STREAMING, name)

        return PausingProvider(provider, stop)

    @property
    def tool(self) -> Tool:
        """Make a tool in which executions stop."""

        async def look(context: ToolContext) -> str:
            """Look; safe to run again."""
            await self.at(Phase.IN_TOOL, self._name(context.run_id))
            return "seen"

        return tool(effects=Effects.READ_ONLY)(look)
