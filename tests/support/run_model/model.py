"""What runs, messages and claims must be: the model that the store is compared with.

One rule: it knows neither SQL nor locks.  What an operation makes of it, `steps` and `writes` say; what
Postgres makes of the same operation, `owners` see.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import attrs

from hango.domain import RunState

from support.run_model.operations import SESSIONS, Op

# Seconds.  A lease ends on a half second, as everything here happens; a local deadline never does.
TTL = 10.5
LOCAL = TTL * 0.9  # seconds that an owner believes in
MAX_RECLAIMS = 4
CAP = 3  # live runs of a session

CONFLICT = "conflict"  # StateConflict: the run is not theirs
AWAY = "no answer"  # StoreUnavailable: nobody can tell
FULL = "full"  # SessionQueueFull

Message: TypeAlias = tuple[int, int, str, bool]
"""Place of its run in the line, turn, role, partial."""
CallKey: TypeAlias = tuple[int, int, int, int]
"""Session, place, turn, ordinal."""


@attrs.define
class Row:
    """A run, as it must be stored.

    Attributes:
        lease: until when (the database's clock, seconds).
        due: between which two seconds it may be claimed again, for a pause has jitter.
    """

    session: int
    place: int
    state: RunState = RunState.QUEUED
    owner: int | None = None
    last_owner: int | None = None
    epoch: int = 0
    turn: int = 0
    reclaims: int = 0
    cancelled: bool = False
    lease: float | None = None
    due: tuple[float, float] | None = None

    @property
    def given_back(self) -> RunState:
        """What it is when its owner leaves it and it has not come to an end."""
        return RunState.CANCELLED if self.cancelled else RunState.QUEUED

    def leave(self, state: RunState) -> None:
        """Have no owner any more."""
        self.state, self.owner, self.last_owner, self.lease = state, None, self.owner, None


@attrs.define
class Hold:
    """What an owner believes of a run since it claimed it.

    Attributes:
        deadline: by when it has to have stopped (its own clock, seconds).
        stored, answered: the run's input is stored, and its open turn's answer.
        begun: the ordinals of the open turn's calls that it has begun.
        last: what it wrote last; empty before.
        kept: its lease is renewed.
        renew_until: when that ends (its own clock, seconds).
    """

    owner: int
    session: int
    place: int
    epoch: int
    reclaims: int
    turn: int
    deadline: float
    stored: bool
    answered: bool
    begun: set[int] = attrs.field(factory=set)
    last: str = ""
    lost: bool = False
    kept: bool = True
    cancelled: bool = False
    draining: bool = False
    renew_until: float = math.inf

    def holds(self, row: Row) -> bool:
        """Whether the run is theirs: the fence."""
        return row.state == "running" and (row.owner, row.epoch) == (self.owner, self.epoch)

    def alive(self, here: float) -> bool:
        """Whether they still renew its lease."""
        return self.kept and not self.lost and here < min(self.deadline, self.renew_until)

    def gave_back(self, row: Row) -> bool:
        """Whether they ended the execution themselves, and there was none since."""
        them = (row.last_owner, row.epoch, row.reclaims) == (self.owner, self.epoch, self.reclaims)
        return row.state != "running" and them


@attrs.define
class Model:
    """All that is stored, and all that the owners believe.

    Attributes:
        here: the owners' clock, seconds.
        now: the database's clock, seconds; it may be put back, to a second before its *peak*.
        lines: the runs of each session, in order.
        messages: of each session, in order.
        effects: the calls on record, and whether they have a result.
        unanswered: who may have a claim in which session without knowing, until when (here).
        said: what the operations under way have answered.
        noted: what they go on with.
        claimed: which claims they have made.
        beaten: how many claims came too late for a head that they saw.
    """

    here: float
    now: float = 0.0
    peak: float = 0.0
    lines: list[list[Row]] = attrs.field(factory=lambda: [[] for _ in SESSIONS])
    messages: list[list[Message]] = attrs.field(factory=lambda: [[] for _ in SESSIONS])
    effects: dict[CallKey, bool] = attrs.field(factory=dict)
    holds: list[Hold] = attrs.field(factory=list)
    unanswered: dict[tuple[int, int], float] = attrs.field(factory=dict)
    said: dict[Op, object] = attrs.field(factory=dict)
    noted: dict[Op, object] = attrs.field(factory=dict)
    claimed: dict[Op, Hold] = attrs.field(factory=dict)
    beaten: int = 0

    def row(self, hold: Hold) -> Row:
        """Return the run that somebody holds, or held."""
        return self.lines[hold.session][hold.place - 1]

    def rows(self, *states: str) -> Iterator[Row]:
        """Return the runs that are in one of *states*."""
        return (row for row in chain(*self.lines) if row.state in states)

    def head(self, session: int) -> Row | None:
        """Return whose turn it is in a session: the running one's, or the first one's in line."""
        live = [row for row in self.lines[session] if not row.state.terminal]
        return min(live, key=lambda row: (row.state == "queued", row.place), default=None)

    def claimable(self, row: Row | None) -> bool:
        """Whether a head may be claimed now."""
        return row is not None and row.state == "queued" and (row.due is None or row.due[0] <= self.now)

    def has(self, row: Row, turn: int, role: str) -> bool:
        """Whether a message of a run is stored."""
        return any(told[:3] == (row.place, turn, role) for told in self.messages[row.session])

    def store(self, row: Row, turn: int, role: str, *, partial: bool = False) -> None:
        """Store a message of a run at the end of its session."""
        self.messages[row.session].append((row.place, turn, role, partial))

    def pass_time(self, here: float, seconds: float) -> None:
        """Let it be *here* for the owners, and *seconds* later, or earlier, for the database."""
        self.here, self.now = here, max(self.now + seconds, self.peak - 1)
        self.peak = max(self.peak, self.now)

    def copied(self) -> Model:
        """Return one that goes its own way from here; much faster than a deep copy."""
        return attrs.evolve(
            self,
            lines=[[copy.copy(row) for row in line] for line in self.lines],
            messages=[list(told) for told in self.messages],
            effects=dict(self.effects),
            holds=[attrs.evolve(hold, begun=set(hold.begun)) for hold in self.holds],
            unanswered=dict(self.unanswered),
            said=dict(self.said),
            noted=copy.deepcopy(self.noted),
            claimed=dict(self.claimed),
        )

    def rest(self, ops: Sequence[Op]) -> None:
        """Take note of the claims that *ops* have made, in their order; nothing is under way."""
        self.holds += [self.claimed[op] for op in ops if op in self.claimed]
        self.said, self.noted, self.claimed, self.beaten = {}, {}, {}, 0
