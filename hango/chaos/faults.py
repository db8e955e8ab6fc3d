"""The faults of a scenario, drawn from a seed.

Rule: pure.  The same seed gives the same faults at the same times; which worker one meets depends on
what the machine is doing then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from random import Random

import attrs


class FaultKind(StrEnum):
    """What can be done to the processes."""

    KILL = "kill"  # SIGKILL to a worker
    PAUSE = "pause"  # SIGSTOP to a worker, SIGCONT once its leases have lapsed
    DRAIN = "drain"  # SIGTERM to a worker
    CUT_LISTENERS = "cut_listeners"  # connections that listen are cut, and a run is created at once
    RESTART = "restart"  # Postgres is stopped, and started again


# Average seconds between two of a kind.  Kills come a little more often than once a second.
_INTERVALS = {
    FaultKind.KILL: 0.9,
    FaultKind.PAUSE: 4.0,
    FaultKind.DRAIN: 9.0,
    FaultKind.CUT_LISTENERS: 5.0,
    FaultKind.RESTART: 10.0,
}
# Shortest and longest, in leases.  A pause is long enough for another process to take over the runs.
_DURATIONS = {FaultKind.PAUSE: (1.2, 2.5), FaultKind.RESTART: (0.0, 1.5)}


@attrs.frozen
class Fault:
    """One fault.

    Attributes:
        at: seconds from the start.
        pick: chooses a target among those there are at that moment.
        duration: seconds.
    """

    at: float
    kind: FaultKind
    pick: int
    duration: float = 0.0


def draw_faults(seed: int, seconds: float, lease: float) -> Sequence[Fault]:
    """Draw the faults of *seconds*, by time; at least one of each kind.

    Each kind is spread evenly: the time is divided, and each part has one at a random moment.
    """
    return sorted(
        (fault for kind in FaultKind for fault in _of_a_kind(kind, seed, seconds, lease)),
        key=lambda fault: fault.at,
    )


def _of_a_kind(kind: FaultKind, seed: int, seconds: float, lease: float) -> Sequence[Fault]:
    random = seeded(seed, kind)
    count = math.ceil(seconds / _INTERVALS[kind])
    shortest, longest = _DURATIONS.get(kind, (0.0, 0.0))
    return [
        Fault(
            at=(number + random.random()) * seconds / count,
            kind=kind,
            pick=random.randrange(2**16),
            duration=random.uniform(shortest, longest) * lease,
        )
        for number in range(count)
    ]


def seeded(seed: int, name: str) -> Random:
    """Return a generator of its own for *name*, the same for the same seed."""
    return Random(f"{seed} {name}")  # noqa: S311 - repeatable, not secret
