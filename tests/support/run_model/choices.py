"""What anybody would do next, so that the search goes where something happens.

One rule: what is drawn is a kind of thing and a number.  What that means here and now follows from the
model alone, so what was drawn can be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TypeAlias

import attrs

from support.run_model.model import Hold, Model
from support.run_model.operations import (
    OWNERS,
    SESSIONS,
    USERS,
    Advance,
    Call,
    Cancel,
    Claim,
    Create,
    Drain,
    Drift,
    Look,
    Op,
    Release,
    Renew,
    Repeat,
    Settle,
    Sweep,
    Time,
    Wait,
    Write,
)


@attrs.frozen
class Succession:
    """A lease lapses unnoticed, and somebody, perhaps the same owner, has the run next."""

    owner: int
    session: int

    @property
    def parts(self) -> Sequence[Op | Drift]:
        """What is done, one after the other."""
        return (Drift(11.0), Sweep(self.owner), Claim(self.owner, self.session))


Choice: TypeAlias = Op | Time | Succession
Choices: TypeAlias = Callable[[Model], Iterable[Choice]]


def operation(model: Model, kind: str, number: int) -> Op:
    """Return as `chosen`, for a kind of `OPERATIONS`."""
    choice = chosen(model, kind, number)
    assert not isinstance(choice, Wait | Drift | Succession)
    return choice


def chosen(model: Model, kind: str, number: int) -> Choice:
    """Return what the *number*-th thing of a kind is now; something else if there is none."""
    for likely in (kind, "claim", "create"):
        if choices := list(_KINDS[likely](model)):
            return choices[number % len(choices)]
    raise AssertionError("somebody can always create a run")


def _cancels(model: Model) -> Iterable[Choice]:
    rows = [*model.rows("queued", "running")] or [line[-1] for line in model.lines if line]
    return [Cancel(user, row.session, row.place) for user in USERS for row in rows]


def _claims(model: Model) -> Iterable[Choice]:
    due = [session for session in SESSIONS if model.claimable(model.head(session))]
    busy = [session for session in SESSIONS if model.head(session)]
    some = product((True, True, True, True, True, False), due or busy, OWNERS)
    return [Claim(owner, session, heard) for heard, session, owner in some]


def _renewals(model: Model) -> Iterable[Choice]:
    owners = {hold.owner for hold in model.holds if hold.alive(model.here)}
    return [Renew(owner, heard) for owner in sorted(owners) for heard in (True, True, False)]


def _writes(kind: str) -> Choices:
    """Return what those with a claim would write, the latest first."""

    def choices(model: Model) -> Iterable[Choice]:
        for number, hold in reversed([*enumerate(model.holds)]):
            yield from _would(kind, number, hold, model)

    return choices


def _late(model: Model) -> Iterable[Choice]:
    """Return all that would be written by those who do not know yet that their run is not theirs."""
    for number, hold in reversed([*enumerate(model.holds)]):
        if hold.kept and not hold.holds(model.row(hold)):
            for kind in ("advance", "call", "settle", "release", "repeat"):
                yield from _would(kind, number, hold, model)


def _would(kind: str, number: int, hold: Hold, model: Model) -> Iterable[Write]:
    """Return what one with a claim would write, as far as they believe that they may."""
    alive = hold.alive(model.here)
    match kind:
        case "advance" if alive:
            yield Advance(number)
        case "call" if alive and hold.answered:
            begun = sorted(hold.begun)
            yield from (Call(number, ordinal) for ordinal in (*begun, *begun, 0, 0, 1))
        case "settle" if alive:
            yield from (Settle(number, well) for well in (True, False))
        case "release" if alive:
            yield Release(number)
        case "repeat" if hold.last and not hold.lost and hold.deadline > model.here:
            yield Repeat(number)


def _successions(model: Model) -> Iterable[Choice]:
    for row in model.rows("running"):
        yield from (
            Succession(owner, row.session) for owner in (row.owner, *OWNERS) if owner is not None
        )


def overtaking(model: Model, number: int) -> tuple[int, Sequence[Sequence[Op]]]:
    """Return a write, and a sweep and a claim that may overtake it; only a claim if nobody can write.

    Returns the session, and what is to be done in it at the same time.
    """
    writes = [
        (write, hold)
        for index, hold in enumerate(model.holds)
        if hold.holds(model.row(hold))
        for kind in ("advance", "call", "settle", "release")
        for write in _would(kind, index, hold, model)
    ]
    if not writes:
        return number % len(SESSIONS), [[operation(model, "claim", number)]]
    write, hold = writes[number % len(writes)]
    owner = OWNERS[number // len(writes) % len(OWNERS)]
    return hold.session, [[write], [Sweep(owner), Claim(owner, hold.session)]]


_KINDS: Mapping[str, Choices] = {
    "create": lambda _: [Create(user, session) for user in USERS for session in SESSIONS],
    "cancel": _cancels,
    "claim": _claims,
    "renew": _renewals,
    "sweep": lambda _: map(Sweep, OWNERS),
    "look": lambda _: map(Look, OWNERS),
    "drain": lambda _: map(Drain, OWNERS),
    "advance": _writes("advance"),
    "call": _writes("call"),
    "settle": _writes("settle"),
    "release": _writes("release"),
    "repeat": _writes("repeat"),
    "late": _late,
    "wait": lambda _: map(Wait, (0.5, 5.0, 9.5)),
    "drift": lambda _: map(Drift, (0.5, 10.5, 11.0)),
    "setback": lambda _: [Drift(-0.5)],
    "succession": _successions,
}

OPERATIONS = (
    *("call",) * 10,
    *("advance",) * 7,
    *("claim",) * 5,
    *("late", "renew") * 4,
    *("create",) * 3,
    *("cancel", "settle", "release", "repeat", "sweep") * 2,
    *("look", "drain"),
)
"""Kinds of what may be done at the same time, as often as they should be."""

KINDS = tuple(sorted(set(OPERATIONS)))

EVENTS = (*("succession",) * 4, *("drift", "setback") * 2, "wait")
"""Kinds of what nothing else is done with."""
