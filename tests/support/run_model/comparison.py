"""Whether what was seen is what the model foresees; if not, a report that can be read.

One rule: what was answered, stored and believed must be what one order of the steps comes to, and what
must change nothing leaves every row as it was, to the byte.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import attrs

from hango.store.claims import Claim

from support.run_model.executor import Executor
from support.run_model.interleavings import orders
from support.run_model.model import Hold, Message, Model
from support.run_model.operations import Op
from support.run_model.stored_state import Stored


@attrs.frozen
class Seen:
    """What came of some operations.

    Attributes:
        said: what was answered.
        beaten: how many claims were counted as lost.
        stored: what there was after it.
        executors: those with a claim, in the model's order.
    """

    said: Mapping[Op, object]
    beaten: int
    stored: Stored
    executors: Sequence[Executor]


def explained(
    seen: Seen,
    model: Model,
    lines: Sequence[Sequence[Op]],
    *,
    before: Stored,
    held: Collection[int] = (),
) -> Model:
    """Return the model after an order that explains what was seen.

    Args:
        seen: what came of it.
        model: what there had to be before.
        lines: what was done at the same time.
        before: what was stored before.
        held: sessions of whose rows somebody else held one.

    Raises:
        AssertionError: none does; or it changed what it must not change.
    """
    possible: dict[str, None] = {}
    for reached in orders(model, lines, held):
        answers = (reached.said, reached.beaten)
        reached.rest([*seen.said])
        if answers == (seen.said, seen.beaten) and _is_as(reached, seen):
            _check_untouched(before, seen.stored, reached)
            return reached
        possible[_told(*answers, reached, reached.holds)] = None
    claims = [executor.claim for executor in seen.executors]
    came_to = _told(seen.said, seen.beaten, seen.stored, claims)
    raise AssertionError("\n".join(["it came to:", came_to, "", "but must come to one of:", *possible]))


def _is_as(model: Model, seen: Seen) -> bool:
    """Whether what is stored, believed and remembered is what the model says."""
    return seen.stored.fits(model) and all(
        _believes(executor.claim, hold)
        and (not hold.holds(model.row(hold)) or _remembers(executor, model.messages[hold.session]))
        for executor, hold in zip(seen.executors, model.holds, strict=True)
    )


def _believes(claim: Claim, hold: Hold) -> bool:
    mine = (claim.lease.lost, claim.cancelled, claim.draining)
    theirs = (hold.lost, hold.cancelled, hold.draining)
    # the clock adds up floats
    return mine == theirs and abs(claim.lease.deadline - hold.deadline) < 1e-6


def _remembers(executor: Executor, stored: Sequence[Message]) -> bool:
    """Whether an owner has in memory all that is stored; one without the run need not."""
    known = [(m.seq, m.turn, m.role, m.partial) for m in executor.transcript.messages]
    return known == [(seq, *message[1:]) for seq, message in enumerate(stored, 1)]


def _check_untouched(before: Stored, after: Stored, reached: Model) -> None:
    if before.fits(reached):
        news = sorted(set(before.everything) ^ set(after.everything))
        assert not news, "\n".join(["it changed what it must not change:", *news])


def _told(
    said: Mapping[Op, object],
    beaten: int,
    there: Model | Stored,
    beliefs: Sequence[Claim | Hold],
) -> str:
    return "\n".join(
        [
            f"  answers {[*said.values()]}; claims counted as lost: {beaten}",
            *(f"  {row}" for row in chain(*there.lines)),
            f"  messages {there.messages}; calls {there.effects}",
            *(f"  claim {number} {_belief(it)}" for number, it in enumerate(beliefs)),
        ]
    )


def _belief(it: Claim | Hold) -> str:
    lease = it.lease if isinstance(it, Claim) else it
    return f"by {lease.deadline:g} s: lost={lease.lost} cancelled={it.cancelled} draining={it.draining}"
