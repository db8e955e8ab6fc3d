"""What users and owners do with runs, as values that a failure can be read by.

One rule: they say what is done, and nothing of what comes of it.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

SESSIONS = range(2)
OWNERS = range(3)
USERS = range(2)


@attrs.frozen
class Create:
    """A user puts a run in line."""

    user: int
    session: int


@attrs.frozen
class Cancel:
    """A user cancels a run; *place* is its place in the line, from 1."""

    user: int
    session: int
    place: int


@attrs.frozen
class Claim:
    """An owner claims the head of a line, and learns of it or not."""

    owner: int
    session: int
    heard: bool = True


@attrs.frozen
class Renew:
    """An owner's heartbeat, whose answer it gets or not."""

    owner: int
    heard: bool = True


@attrs.frozen
class Sweep:
    """An owner takes back what has lapsed."""

    owner: int


@attrs.frozen
class Look:
    """An owner looks which lines may be claimed."""

    owner: int


@attrs.frozen
class Drain:
    """An owner is told to hand its runs over at their next boundaries."""

    owner: int


@attrs.frozen
class Advance:
    """A claim's next message: its open turn's answer, or else the results that end the turn.

    Attributes:
        hold: which claim, of whichever owner; 0 is the first one made.
    """

    hold: int


@attrs.frozen
class Call:
    """A call of a claim's open turn is begun, or else what it came to is recorded."""

    hold: int
    ordinal: int


@attrs.frozen
class Settle:
    """A claim's run ends as succeeded, if that can be, or else as failed."""

    hold: int
    well: bool = True


@attrs.frozen
class Release:
    """A claim's run is given back, or ends if that was asked for."""

    hold: int


@attrs.frozen
class Repeat:
    """A claim's last write is sent again, as one whose answer was lost is."""

    hold: int


@attrs.frozen
class Wait:
    """Time passes for all; seconds."""

    seconds: float


@attrs.frozen
class Drift:
    """Time passes, or goes back, for the database only: owners were stopped, or their clocks err."""

    seconds: float


Write: TypeAlias = Advance | Call | Settle | Release | Repeat
"""What an executor does under a claim; a claim's writes come one after the other."""

Time: TypeAlias = Wait | Drift

Op: TypeAlias = Create | Cancel | Claim | Renew | Sweep | Look | Drain | Write


def apart(op: Op) -> object:
    """Name what must not be done twice at the same time."""
    match op:
        case Advance() | Call() | Settle() | Release() | Repeat():
            return op.hold
        case Claim():
            return ("claim", op.owner, op.session)
        case _:
            return op
