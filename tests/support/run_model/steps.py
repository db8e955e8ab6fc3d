"""What each operation must make of the model, step by step.

One rule: a step is what happens at one instant: what a statement sees before it waits for a row is one,
what it does with the row another, and what its process makes of the answer a third.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TypeVar, cast

import attrs

from hango.actors.leases import INTERRUPT_GRACE
from hango.domain import RunState

from support.run_model.model import AWAY, CAP, FULL, LOCAL, MAX_RECLAIMS, TTL, Hold, Model, Row
from support.run_model.operations import (
    SESSIONS,
    Advance,
    Call,
    Cancel,
    Claim,
    Create,
    Drain,
    Look,
    Op,
    Release,
    Renew,
    Repeat,
    Settle,
    Sweep,
)
from support.run_model.writes import conclude, write

AnOp = TypeVar("AnOp")

_UNANSWERED = 30.0  # seconds in which a claim without an answer may still be made


@attrs.frozen
class Step:
    """What is done at one instant.

    Attributes:
        act: changes the model; passes over the running runs of the sessions it is given.
        skips: it may be given some.
    """

    act: Callable[[Model, Collection[int]], None]
    skips: bool = False


def steps_of(op: Op, model: Model) -> Sequence[Step]:
    """Return what an operation that begins now does, in its order."""
    match op:
        case Create():
            steps = [_step(_create, op)]
        case Cancel():
            steps = [_step(_cancel, op), _step(_read_state, op)]
        case Claim():
            steps = [_step(_aim, op), _step(_take, op)]
            if (op.owner, op.session) in model.unanswered:
                steps = [_step(_find_unanswered, op), _step(_give_back, op), *steps]
        case Renew():
            steps = [_step(_ask, op), Step(partial(_renew, op), skips=True), _step(_hear, op)]
        case Sweep():
            steps = [Step(partial(_sweep, op), skips=True)]
        case Look():
            steps = [_step(_look, op)]
        case Drain():
            steps = [_step(_drain, op)]
        case Advance() | Call() | Settle() | Release() | Repeat():
            steps = [_step(write, op), _step(conclude, op)]
    return steps


def _step(act: Callable[[AnOp, Model], None], op: AnOp) -> Step:
    return Step(lambda model, _: act(op, model))


# --- users ----------------------------------------------------------------------------------


def _create(op: Create, model: Model) -> None:
    line = model.lines[op.session]
    if sum(not row.state.terminal for row in line) >= CAP:
        model.said[op] = FULL
    else:
        line.append(Row(op.session, len(line) + 1))
        model.said[op] = len(line)


def _cancel(op: Cancel, model: Model) -> None:
    row = model.lines[op.session][op.place - 1]
    if row.state == "queued":
        row.state, row.cancelled = RunState.CANCELLED, True
    elif row.state == "running" and not row.cancelled:
        row.cancelled = True
    else:
        return
    model.said[op] = row.state


def _read_state(op: Cancel, model: Model) -> None:
    model.said.setdefault(op, model.lines[op.session][op.place - 1].state)


# --- owners, with the queue -----------------------------------------------------------------


def _find_unanswered(op: Claim, model: Model) -> None:
    age = model.here - (model.unanswered[op.owner, op.session] - _UNANSWERED)
    # of a claim made since, and whose lease has not lapsed: that is the sweep's
    lapses_after = model.now + max(TTL / 2 - age, 0.0)
    model.noted[op] = [
        (row.place, row.epoch)
        for row in model.rows("running")
        if (row.owner, row.session) == (op.owner, op.session) and (row.lease or 0) > lapses_after
    ]


def _give_back(op: Claim, model: Model) -> None:
    for row in model.rows("running"):
        found = cast("Sequence[tuple[int, int]]", model.noted[op])
        if (row.owner, row.session) == (op.owner, op.session) and (row.place, row.epoch) in found:
            row.leave(row.given_back)
    if model.here >= model.unanswered[op.owner, op.session]:
        del model.unanswered[op.owner, op.session]


def _aim(op: Claim, model: Model) -> None:
    head = model.head(op.session)
    model.noted[op] = (head.place, model.claimable(head)) if head else None


def _take(op: Claim, model: Model) -> None:
    model.said[op] = None if op.heard else AWAY
    if not op.heard:
        model.unanswered[op.owner, op.session] = model.here + _UNANSWERED
    if model.noted[op] is None:
        return
    place, due = cast("tuple[int, bool]", model.noted[op])
    row = model.lines[op.session][place - 1]
    if not model.claimable(row):
        model.beaten += due and op.heard
        return
    row.state, row.owner, row.due = RunState.RUNNING, op.owner, None
    row.epoch, row.lease = row.epoch + 1, model.now + TTL
    if op.heard:
        model.claimed[op] = _hold(op, model, row)
        model.said[op] = (row.place, row.epoch, row.turn, len(model.messages[op.session]))


def _hold(op: Claim, model: Model, row: Row) -> Hold:
    return Hold(
        *(op.owner, op.session, row.place, row.epoch, row.reclaims, row.turn),
        deadline=model.here + LOCAL,
        stored=model.has(row, 0, "user"),
        answered=model.has(row, row.turn + 1, "assistant"),
    )


def _ask(op: Renew, model: Model) -> None:
    model.noted[op] = {
        index: [False, not hold.holds(model.row(hold)), False]
        for index, hold in enumerate(model.holds)
        if hold.owner == op.owner and hold.alive(model.here)
    }
    for index, answer in _answers(op, model):
        row = model.row(model.holds[index])
        answer[2] = row.cancelled and not answer[1]


def _answers(op: Renew, model: Model) -> Iterator[tuple[int, list[bool]]]:
    """Return, by hold, whether it is renewed, lost, and cancelled."""
    return iter(cast("dict[int, list[bool]]", model.noted[op]).items())


def _renew(op: Renew, model: Model, skipped: Collection[int]) -> None:
    for index, answer in _answers(op, model):
        hold = model.holds[index]
        row = model.row(hold)
        if hold.holds(row) and hold.session not in skipped:
            row.lease, answer[0] = max(row.lease or 0, model.now + TTL), True


def _hear(op: Renew, model: Model) -> None:
    model.said[op] = tuple((index, *answer) for index, answer in _answers(op, model))
    for index, (renewed, lost, cancelled) in _answers(op, model):
        hold = model.holds[index]
        if op.heard and hold.alive(model.here):
            hold.deadline = model.here + LOCAL if renewed else hold.deadline
            if cancelled and not hold.cancelled:
                hold.renew_until = model.here + INTERRUPT_GRACE
            hold.lost, hold.cancelled = lost, hold.cancelled or cancelled


def _sweep(op: Sweep, model: Model, skipped: Collection[int]) -> None:
    lapsed = [
        row
        for row in model.rows("running")
        if row.lease is not None and row.lease < model.now and row.session not in skipped
    ]
    for row in lapsed:
        crashes = row.reclaims + 1 >= MAX_RECLAIMS and not row.cancelled
        row.leave(RunState.FAILED if crashes else row.given_back)
        if row.state == "queued" and row.reclaims:
            pause = min(3.0 ** (row.reclaims - 1), 300.0)
            row.due = (model.now + pause / 4, model.now + pause)
        row.reclaims += 1
    model.said[op] = len(lapsed)


def _look(op: Look, model: Model) -> None:
    heads = [head for session in SESSIONS if (head := model.head(session))]
    waiting = [head for head in heads if head.state == "queued" and not model.claimable(head)]
    model.said[op] = (
        frozenset(head.session for head in heads if model.claimable(head)),
        bool(waiting),
    )


def _drain(op: Drain, model: Model) -> None:
    model.said[op] = None
    for hold in model.holds:
        hold.draining = hold.draining or (hold.owner == op.owner and hold.kept)
