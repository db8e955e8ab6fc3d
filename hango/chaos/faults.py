"""The faults of a scenario, drawn from a seed.

Rule: pure.  The same seed gives the same faults at the same times; which worker one meets depends on
what the machine is doing then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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
    BLACKHOLE = "blackhole"  # nothing passes between a worker and Postgres; nothing is closed
    TAKE_CONNECTIONS = "take_connections"  # others have all connections that Postgres allows
    FILL_DISK = "fill_disk"  # Postgres has no room for what is written
    MISBEHAVE = "misbehave"  # the model or a tool of another tenant's run does what none should
    TENANT_FLOOD = "tenant_flood"  # another tenant queues very many runs
    WEB_FLOOD = "web_flood"  # another tenant asks one worker for big lists, a hundred at a time


GROUPS: Mapping[str, frozenset[FaultKind]] = {
    "crashes": frozenset(
        {
            FaultKind.KILL,
            FaultKind.PAUSE,
            FaultKind.DRAIN,
            FaultKind.CUT_LISTENERS,
            FaultKind.RESTART,
        }
    ),
    "database": frozenset({FaultKind.BLACKHOLE, FaultKind.TAKE_CONNECTIONS, FaultKind.FILL_DISK}),
    "neighbours": frozenset({FaultKind.MISBEHAVE, FaultKind.TENANT_FLOOD, FaultKind.WEB_FLOOD}),
}
"""Kinds that are chosen together."""

IN_POSTGRES = {FaultKind.RESTART, FaultKind.TAKE_CONNECTIONS, FaultKind.FILL_DISK}
"""During these no run can go on."""

# Average seconds between two of a kind.  Kills come a little more often than once a second.
_INTERVALS = {
    FaultKind.KILL: 0.9,
    FaultKind.PAUSE: 6.0,
    FaultKind.DRAIN: 9.0,
    FaultKind.CUT_LISTENERS: 5.0,
    FaultKind.RESTART: 10.0,
    FaultKind.BLACKHOLE: 10.0,
    FaultKind.TAKE_CONNECTIONS: 20.0,
    FaultKind.FILL_DISK: 20.0,
    FaultKind.MISBEHAVE: 1.5,
    FaultKind.TENANT_FLOOD: 20.0,
    FaultKind.WEB_FLOOD: 12.0,
}
# Shortest and longest, in leases.  A pause is long enough for another process to take over the runs.
_DURATIONS = {
    FaultKind.PAUSE: (1.2, 2.5),
    FaultKind.RESTART: (0.0, 1.0),
    FaultKind.BLACKHOLE: (0.5, 2.0),
    FaultKind.TAKE_CONNECTIONS: (0.3, 1.2),
    FaultKind.FILL_DISK: (0.3, 1.2),
    FaultKind.WEB_FLOOD: (1.0, 2.0),
}


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


def draw_faults(
    seed: int, seconds: float, lease: float, kinds: Collection[FaultKind] = tuple(FaultKind)
) -> Sequence[Fault]:
    """Draw the faults of *seconds*, by time; at least one of each of *kinds*.

    What is drawn of a kind does not depend on the other kinds.  Each kind is spread evenly: the time is
    divided, and each part has one at a random moment.
    """
    return sorted(
        (fault for kind in kinds for fault in _of_a_kind(kind, seed, seconds, lease)),
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
