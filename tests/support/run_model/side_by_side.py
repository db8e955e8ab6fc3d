"""Three owners and the model beside them, from the first operation to the last.

One rule: after each thing that is done the two are compared, and at the end nothing is left undone and
every invariant holds; whatever fails tells the story so far.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import attrs
import pytest
import trio

from hango.store.invariants import check
from hango.telemetry import names
from hango.testing.plugin import LeaseClock, SeededTenant

from support.counters import counted
from support.locks import row_held, waiting
from support.run_model.choices import Choice, Succession
from support.run_model.comparison import Seen, explained
from support.run_model.model import CAP, Model
from support.run_model.operations import (
    SESSIONS,
    Claim,
    Drain,
    Drift,
    Look,
    Op,
    Renew,
    Settle,
    Sweep,
    Time,
    Wait,
    apart,
)
from support.run_model.owners import Owners
from support.run_model.stored_state import Names, Stored

Gate: TypeAlias = tuple[Literal["sessions", "runs"], int]
"""A row that somebody sits on while all begin: a session's, or that of the head of its line."""

# Ahead of the real clock, which messages have their times from.
_AHEAD = timedelta(days=1)
_NEVER_WAITS = Renew | Sweep | Look | Drain
_LONG = 1000.0  # seconds; every lease has lapsed then, and every pause is over


@attrs.define(eq=False)
class Trial:
    """One sequence of operations after the other.

    Attributes:
        model: what there must be.
        stored: what there is.
        story: what was done, and what was answered.
        failures: of all sequences so far.
    """

    clock: LeaseClock
    epoch: datetime = attrs.field(factory=lambda: datetime.now(UTC).replace(microsecond=0) + _AHEAD)
    model: Model = attrs.field(factory=lambda: Model(0))
    story: list[str] = attrs.field(factory=list)
    failures: list[AssertionError] = attrs.field(factory=list)
    _failed: bool = False
    owners: Owners = attrs.field(init=False)
    stored: Stored = attrs.field(init=False)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, database: str, world: SeededTenant, clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Trial]:
        """Have one, on the test's clock."""
        clock.waits_for_threads = False  # whoever tells it what to do is in one
        trial = cls(clock)
        async with Owners.opened(database, world, trial.now, monkeypatch) as trial.owners:
            yield trial

    def now(self) -> datetime:
        """Return what the database is told."""
        return self.epoch + timedelta(seconds=self.model.now)

    async def begin(self) -> None:
        """Begin anew, with nothing stored."""
        await self.owners.begin()
        self.model, self.story, self._failed = Model(trio.current_time()), [], False
        self.stored = await self._read()

    async def play(self, choice: Choice) -> None:
        """Do *choice*, or let it happen; raises as `do`."""
        match choice:
            case Succession():
                for part in choice.parts:
                    await self.play(part)
            case Wait() | Drift():
                await self._pass_time(choice)
            case _:
                await self.do([choice])

    async def _pass_time(self, time: Time) -> None:
        if isinstance(time, Wait):
            await self.clock.advance(time.seconds)
        self.model.pass_time(trio.current_time(), time.seconds)
        self.story.append(str(time))

    async def do(self, *asked: Sequence[Op], gate: Gate | None = None) -> None:
        """Do all lines at the same time, the operations of each one after the other.

        Args:
            asked: what to do; of what is not done twice at the same time, only the first is done.
            gate: somebody to sit on a row until everybody waits for it, or is done.

        Raises:
            AssertionError: what came of it is not what the model says.
        """
        first = {apart(op): op for line in reversed(asked) for op in reversed(line)}
        lines = [[op for op in line if first[apart(op)] is op] for line in asked]
        lost = counted(names.RUN_CLAIMS, outcome="lost")
        said = await self._done(lines, gate)
        lost = counted(names.RUN_CLAIMS, outcome="lost") - lost
        self.story.append(_told(lines, said, gate))
        self.owners.rest([*said])
        before, self.stored = self.stored, await self._read()
        seen = Seen(said, lost, self.stored, self.owners.executors)
        held = [gate[1]] if gate else []
        with self._telling():
            self.model = explained(seen, self.model, lines, before=before, held=held)
        self.stored.tell(self.model)

    async def _done(self, lines: Sequence[Sequence[Op]], gate: Gate | None) -> Mapping[Op, object]:
        said: dict[Op, object] = dict.fromkeys(op for line in lines for op in line)
        under_way = set(range(len(lines)))

        async def do(number: int) -> None:
            for op in lines[number]:
                said[op] = await self.owners.do(op, self.stored.ids, self.model.holds)
            under_way.remove(number)

        async with trio.open_nursery() as nursery, self._gated(gate):
            for number in range(len(lines)):
                nursery.start_soon(do, number)
            while gate and await waiting(self.owners.world.pool) < len(under_way):
                await trio.lowlevel.checkpoint()
            held_up = [lines[number] for number in under_way] if gate else []
        with self._telling():
            for line in held_up:
                assert not all(isinstance(op, _NEVER_WAITS) for op in line), f"{line} waited for a row"
        return said

    def _gated(self, gate: Gate | None) -> AbstractAsyncContextManager[object]:
        if gate is None:
            return nullcontext()
        table, session = gate
        head = self.model.head(session)
        row_id = self.owners.sessions[session].id
        if table == "runs" and head:
            row_id = self.stored.ids[session][head.place - 1]
        return row_held(self.owners.world.pool, table if head else "sessions", row_id)

    async def _read(self) -> Stored:
        sessions = [session.id for session in self.owners.sessions]
        owners = [owner.queue.owner_id for owner in self.owners.owners]
        return await Stored.read(self.owners.world.pool, Names(sessions, owners, self.epoch))

    async def finish(self) -> None:
        """Let the first owner do all that is left, and look at everything again.

        Raises:
            AssertionError: something is left, or an invariant does not hold.
        """
        if self._failed:
            return
        for _ in range(2 * CAP):
            if any(self.model.rows("queued", "running")):
                await self._execute_heads()
        with self._telling():
            assert not list(self.model.rows("queued", "running"))
            found = await check(self.owners.world.pool)
            assert not found, found

    async def _execute_heads(self) -> None:
        await self._pass_time(Drift(_LONG))
        await self.do([Sweep(0)])
        for session in SESSIONS:
            if self.model.claimable(self.model.head(session)):
                await self.do([Claim(0, session)])
                await self.do([Settle(len(self.model.holds) - 1)])

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Let what fails tell the story."""
        try:
            yield
        except AssertionError as error:
            self._failed = True
            self.failures.append(AssertionError("\n".join(["", *self.story, "", str(error)])))
            raise self.failures[-1] from None


def _told(lines: Sequence[Sequence[Op]], said: Mapping[Op, object], gate: Gate | None) -> str:
    told = [", then ".join(f"{op} -> {said[op]}" for op in line) for line in lines if line]
    held = f"\n    while somebody sat on a row of {gate[0]} of session {gate[1]}" if gate else ""
    return "\n    at the same time ".join(told) + held
