"""What an executor must make of the model by writing under its claim.

One rule: a write counts while the run is its claim's; what the same claim has done before is done;
every other write is a conflict, and changes nothing.
"""

from __future__ import annotations

from hango.domain import RunState

from support.run_model.model import AWAY, CONFLICT, LOCAL, TTL, Hold, Model, Row
from support.run_model.operations import Advance, Call, Release, Repeat, Settle, Write


def write(op: Write, model: Model) -> None:
    """Write, unless one knows oneself that it cannot be."""
    hold = model.holds[op.hold]
    row = model.row(hold)
    if hold.lost:
        model.said[op] = CONFLICT
    elif model.here >= hold.deadline:
        model.said[op] = AWAY
    else:
        model.said[op] = _fenced(op, model, hold, row)


def _fenced(op: Write, model: Model, hold: Hold, row: Row) -> object:
    """Write if the run is theirs; else it is done already, or a conflict."""
    if isinstance(op, Repeat):
        return _repeat(hold, row)
    if not hold.holds(row) or (isinstance(op, Release) and (row.lease or 0) <= model.now):
        return _again(op, hold, row)
    match op:
        case Advance():
            return _advance(model, hold, row)
        case Call():
            return _call(op, model, hold, row)
        case Settle():
            return _settle(op, model, hold, row)
        case Release():
            return _release(model, hold, row)


def _again(op: Write, hold: Hold, row: Row) -> object:
    """End once more what was given back; an end must be the one that is stored."""
    other = isinstance(op, Settle) and row.state != _end(op, hold)
    if isinstance(op, Advance | Call) or other or not hold.gave_back(row):
        return CONFLICT
    hold.last = "end"
    return row.state


def _repeat(hold: Hold, row: Row) -> object:
    if hold.last == "end":
        return row.state if hold.gave_back(row) else CONFLICT
    if not hold.holds(row):
        return CONFLICT
    return row.cancelled if hold.last == "end_turn" else None


def _advance(model: Model, hold: Hold, row: Row) -> object:
    if not hold.answered:
        _say(model, hold, row, partial=False)
        hold.last, hold.stored, hold.answered = "append", True, True
        return None
    row.turn, row.reclaims, row.lease = row.turn + 1, 0, max(row.lease or 0, model.now + TTL)
    model.store(row, row.turn, "user")
    hold.last, hold.turn, hold.reclaims, hold.answered = "end_turn", row.turn, 0, False
    hold.begun.clear()
    return row.cancelled


def _say(model: Model, hold: Hold, row: Row, *, partial: bool) -> None:
    """Store the open turn's answer, or what there is of it, and before it the input, if need be."""
    if not hold.stored:
        model.store(row, 0, "user")
    if not hold.answered:
        model.store(row, row.turn + 1, "assistant", partial=partial)


def _call(op: Call, model: Model, hold: Hold, row: Row) -> object:
    key = (row.session, row.place, row.turn + 1, op.ordinal)
    if op.ordinal in hold.begun:
        model.effects[key] = True
        return None
    hold.begun.add(op.ordinal)
    earlier = model.effects.get(key)
    model.effects.setdefault(key, False)
    return {None: "new", False: "begun", True: "finished"}[earlier]


def _end(op: Settle, hold: Hold) -> RunState:
    return RunState.SUCCEEDED if op.well and not hold.answered else RunState.FAILED


def _settle(op: Settle, model: Model, hold: Hold, row: Row) -> object:
    state = _end(op, hold)
    _say(model, hold, row, partial=state == "failed")
    row.turn += state == "succeeded"
    row.leave(state)
    hold.last = "end"
    return state


def _release(model: Model, hold: Hold, row: Row) -> object:
    if row.cancelled:
        _say(model, hold, row, partial=True)
    row.leave(row.given_back)
    hold.last = "end"
    return row.state


def conclude(op: Write, model: Model) -> None:
    """Draw the conclusions, at home."""
    hold, said = model.holds[op.hold], model.said[op]
    hold.lost = hold.lost or said == CONFLICT
    if isinstance(said, bool):  # whether the run was cancelled, at its boundary
        if isinstance(op, Advance) and not hold.lost and model.here < hold.deadline:
            hold.deadline = max(hold.deadline, model.here + LOCAL)
        hold.cancelled = hold.cancelled or said
        model.said[op] = not (hold.cancelled or hold.draining)
    hold.kept = hold.kept and not isinstance(said, RunState)
