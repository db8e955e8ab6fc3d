"""What is going to happen, drawn from a seed: the blows, and the scripts of the runs.

One rule: pure.  The same seed gives the same blows at the same times and the same runs; what a blow
hits depends on what the machine is doing at that moment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from random import Random

import attrs

from hango.domain import Effects


class Kind(StrEnum):
    """What can happen to the processes."""

    KILL = "kill"  # SIGKILL to a worker
    PAUSE = "pause"  # SIGSTOP to a worker, SIGCONT once its leases have lapsed
    DRAIN = "drain"  # SIGTERM to a worker
    DEAFEN = "deafen"  # the connections that listen are cut, and a run is created at once
    RESTART = "restart"  # Postgres is stopped, and started again


# Seconds from one to the next, on the average.  Kills come a little more often than once a second.
_EVERY = {Kind.KILL: 0.9, Kind.PAUSE: 4.0, Kind.DRAIN: 9.0, Kind.DEAFEN: 5.0, Kind.RESTART: 10.0}
# How long it lasts, in leases.  A pause is long enough for somebody else to take the runs over.
_LASTS = {Kind.PAUSE: (1.2, 2.5), Kind.RESTART: (0.0, 1.5)}


@attrs.frozen
class Blow:
    """One thing that happens.

    Attributes:
        at: seconds from the start.
        pick: chooses whom it hits, of however many there are then.
        lasts: seconds.
    """

    at: float
    kind: Kind
    pick: int
    lasts: float = 0.0


def draw_blows(seed: int, seconds: float, lease: float) -> Sequence[Blow]:
    """Draw the blows of *seconds*, in their order; at least one of each kind.

    Each kind is spread evenly, one at a random moment of each of its stretches.
    """
    return sorted(
        (blow for kind in Kind for blow in _of_a_kind(kind, seed, seconds, lease)),
        key=lambda blow: blow.at,
    )


def _of_a_kind(kind: Kind, seed: int, seconds: float, lease: float) -> Sequence[Blow]:
    random = _random(seed, kind)
    count = math.ceil(seconds / _EVERY[kind])
    shortest, longest = _LASTS.get(kind, (0.0, 0.0))
    return [
        Blow(
            at=(number + random.random()) * seconds / count,
            kind=kind,
            pick=random.randrange(2**16),
            lasts=random.uniform(shortest, longest) * lease,
        )
        for number in range(count)
    ]


def _random(seed: int, whose: str) -> Random:
    return Random(f"{seed} {whose}")  # noqa: S311 - to be repeated, not to be secret


# --- the runs -------------------------------------------------------------------------------


TOOLS = {
    "look": Effects.READ_ONLY,
    "crunch": Effects.READ_ONLY,  # in a thread
    "fail": Effects.READ_ONLY,
    "set": Effects.IDEMPOTENT,
    "order": Effects.KEYED,
    "send": Effects.UNSAFE,
}
BROKEN = "broken"  # the last answer breaks off, and the run fails for it
DONE = "done"


@attrs.frozen
class Step:
    """One call of a tool: which, and for how many milliseconds it is at work."""

    tool: str
    milliseconds: int


@attrs.frozen
class Turn:
    """What the model asks for in one turn.

    Attributes:
        stumbles: its first request fails in a way that is tried again.
    """

    steps: tuple[Step, ...]
    stumbles: bool = False


@attrs.frozen
class Script:
    """A run: the prompt that is its input, and what the model makes of it.

    Attributes:
        tag: a word of its own, by which the journal knows it.
        pause: milliseconds the model takes for an answer.
        ending: `DONE` or `BROKEN`.
    """

    tag: str
    pause: int
    turns: tuple[Turn, ...]
    ending: str = DONE

    @property
    def text(self) -> str:
        """Write it down: ``r1 80 look:0 ~set:200+send:0 done``."""
        turns = (
            "~" * turn.stumbles + "+".join(f"{step.tool}:{step.milliseconds}" for step in turn.steps)
            for turn in self.turns
        )
        return " ".join([self.tag, str(self.pause), *turns, self.ending])

    @classmethod
    def parse(cls, text: str) -> Script:
        """Read what `text` wrote."""
        tag, pause, *turns, ending = text.split()
        return cls(tag, int(pause), tuple(map(_turn, turns)), ending)


def _turn(word: str) -> Turn:
    calls = (call.split(":") for call in word.removeprefix("~").split("+"))
    steps = tuple(Step(tool, int(milliseconds)) for tool, milliseconds in calls)
    return Turn(steps, stumbles=word.startswith("~"))


@attrs.frozen
class Order:
    """What a client asks for.

    Attributes:
        then: seconds until it asks for the next.
        cancel_after: seconds until it takes this one back; None if it does not.
    """

    script: Script
    then: float
    cancel_after: float | None


@attrs.define
class Client:
    """Draws the orders of one client, one after the other."""

    name: str
    _random: Random
    _count: int = 0

    @classmethod
    def of(cls, seed: int, name: str) -> Client:
        """Make the client of that name."""
        return cls(name, _random(seed, name))

    def next(self) -> Order:
        """Draw an order."""
        random = self._random
        self._count += 1
        turns = tuple(self._turn() for _ in range(random.randint(1, 4)))
        ending = BROKEN if random.random() < _BREAKS else DONE
        script = Script(f"{self.name}-{self._count}", random.choice(_PAUSES), turns, ending)
        cancel_after = random.uniform(0.0, 2.0) if random.random() < _CANCELS else None
        return Order(script, random.uniform(0.2, 2.0), cancel_after)

    def _turn(self) -> Turn:
        random = self._random
        steps = (
            Step(random.choice(tuple(TOOLS)), random.choice(_PAUSES))
            for _ in range(random.randint(1, 3))
        )
        return Turn(tuple(steps), stumbles=random.random() < _STUMBLES)


# Milliseconds: from a body that is over at once to one that a kill is likely to hit.
_PAUSES = (0, 20, 100, 400)
# Shares: enough of each in a minute, and most runs go through all their turns.
_CANCELS = 0.15
_BREAKS = 0.05
_STUMBLES = 0.05
