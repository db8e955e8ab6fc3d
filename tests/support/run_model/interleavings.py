"""All that may come of operations that are done at the same time.

One rule: it is what some order of their steps comes to, where a sweep or a heartbeat may pass over a
run that somebody else works on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, combinations

from support.run_model.model import Model
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
from support.run_model.steps import Step, steps_of


def orders(model: Model, lines: Sequence[Sequence[Op]], held: Collection[int] = ()) -> Iterator[Model]:
    """Return what may come of several lines of operations, each of them done one after the other.

    Args:
        model: what there is before; it is left as it is.
        lines: what is done; nothing twice.
        held: sessions of whose rows somebody else holds one.
    """
    contended = _contended(model, lines, held)
    seen: set[tuple[str, tuple[int, ...]]] = set()

    def go_on(reached: Model, left: Sequence[Sequence[Step]]) -> Iterator[Model]:
        if not any(left):
            yield reached
        for number, steps in enumerate(left):
            if not steps:
                continue
            step, then = steps[0], [*left[:number], steps[1:], *left[number + 1 :]]
            for skipped in _subsets(contended[number] if step.skips else ()):
                after = reached.copied()
                step.act(after, skipped)
                # most orders differ in nothing that matters, and are not gone through twice
                place = (repr(after), tuple(map(len, then)))
                if place not in seen:
                    seen.add(place)
                    yield from go_on(after, then)

    return go_on(model, [[step for op in line for step in steps_of(op, model)] for line in lines])


def _contended(
    model: Model, lines: Sequence[Sequence[Op]], held: Collection[int]
) -> Sequence[Collection[int]]:
    """Tell, for each line, in which sessions somebody else may hold a run's row."""
    touched = [{session for op in line for session in _touched(op, model)} for line in lines]
    return [
        {*held, *chain(*(others for place, others in enumerate(touched) if place != number))}
        for number in range(len(lines))
    ]


def _touched(op: Op, model: Model) -> Collection[int]:
    """Return the sessions of whose runs *op* may lock one."""
    match op:
        case Cancel() | Claim():
            return [op.session]
        case Advance() | Call() | Settle() | Release() | Repeat():
            return [model.holds[op.hold].session]
        case Renew() | Sweep():
            return SESSIONS
        case Create() | Look() | Drain():
            return ()


def _subsets(sessions: Collection[int]) -> Iterator[Collection[int]]:
    return chain.from_iterable(combinations(sorted(sessions), n) for n in range(len(sessions) + 1))
