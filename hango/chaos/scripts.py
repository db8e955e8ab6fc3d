"""The runs of a scenario, drawn from a seed: what clients request, and what the model answers.

Rule: pure.  A run's prompt is its script, so the model and the checks read what was meant from the run.
"""

from __future__ import annotations

from random import Random

import attrs

from hango.chaos.faults import seeded
from hango.domain import Effects

TOOLS = {
    "look": Effects.READ_ONLY,
    "crunch": Effects.READ_ONLY,  # in a thread
    "fail": Effects.READ_ONLY,
    "set": Effects.IDEMPOTENT,
    "order": Effects.KEYED,
    "send": Effects.UNSAFE,
}
BROKEN = "broken"  # the last answer breaks off, and the run fails
DONE = "done"

# Milliseconds: from work that is over at once to work that a kill is likely to hit.
_DURATIONS = (0, 20, 100, 400)
# Shares: enough of each in a minute, and most runs go through all their turns.
_CANCELLED = 0.15
_BROKEN = 0.05
_REFUSED_FIRST = 0.05


@attrs.frozen
class Step:
    """One tool call: the tool, and how many milliseconds it works."""

    tool: str
    milliseconds: int


@attrs.frozen
class Turn:
    """What the model asks for in one turn.

    Attributes:
        refused_first: the first request fails with an error that is retried.
    """

    steps: tuple[Step, ...]
    refused_first: bool = False


@attrs.frozen
class Script:
    """A run: its prompt, and what the model answers.

    Attributes:
        tag: a word of its own, by which the journal knows the run.
        milliseconds: the model takes for an answer.
        ending: `DONE` or `BROKEN`.
    """

    tag: str
    milliseconds: int
    turns: tuple[Turn, ...]
    ending: str = DONE

    @property
    def pauses(self) -> tuple[float, float]:
        """Seconds the model waits before an answer, and before each of its events."""
        return self.milliseconds / 2000, self.milliseconds / 8000

    def answer_seconds(self, blocks: int) -> float:
        """Return the seconds an answer of *blocks* blocks takes."""
        first, each = self.pauses
        return first + each * (4 * blocks + 2)

    @property
    def text(self) -> str:
        """Write it as a prompt: ``r1 80 look:0 ~set:200+send:0 done``."""
        turns = (
            "~" * turn.refused_first
            + "+".join(f"{step.tool}:{step.milliseconds}" for step in turn.steps)
            for turn in self.turns
        )
        return " ".join([self.tag, str(self.milliseconds), *turns, self.ending])

    @classmethod
    def parse(cls, text: str) -> Script:
        """Read what `text` wrote."""
        tag, milliseconds, *turns, ending = text.split()
        return cls(tag, int(milliseconds), tuple(map(_parse_turn, turns)), ending)


def _parse_turn(word: str) -> Turn:
    calls = (call.split(":") for call in word.removeprefix("~").split("+"))
    steps = tuple(Step(tool, int(milliseconds)) for tool, milliseconds in calls)
    return Turn(steps, refused_first=word.startswith("~"))


@attrs.frozen
class RunRequest:
    """One request of a client.

    Attributes:
        pause: seconds until its next one.
        cancel_after: seconds until the client cancels it; None if it does not.
    """

    script: Script
    pause: float
    cancel_after: float | None


@attrs.define
class ClientPlan:
    """Draws the requests of one client, one after the other."""

    name: str
    _random: Random
    _count: int = 0

    @classmethod
    def of(cls, seed: int, name: str) -> ClientPlan:
        """Make the plan of the client of that name."""
        return cls(name, seeded(seed, name))

    def next(self) -> RunRequest:
        """Draw a request."""
        random = self._random
        self._count += 1
        turns = tuple(self._turn() for _ in range(random.randint(1, 4)))
        ending = BROKEN if random.random() < _BROKEN else DONE
        script = Script(f"{self.name}-{self._count}", random.choice(_DURATIONS), turns, ending)
        cancel_after = random.uniform(0.0, 2.0) if random.random() < _CANCELLED else None
        return RunRequest(script, random.uniform(0.2, 2.0), cancel_after)

    def _turn(self) -> Turn:
        random = self._random
        steps = (
            Step(random.choice(tuple(TOOLS)), random.choice(_DURATIONS))
            for _ in range(random.randint(1, 3))
        )
        return Turn(tuple(steps), refused_first=random.random() < _REFUSED_FIRST)
