"""Completion gates for tests: what they say is written down before, and what they were asked after."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from hango import Completion, RunResult, Verdict

PASS: Verdict = (True, "")


def no(reason: str) -> Verdict:
    """Reject."""
    return False, reason


@attrs.define(eq=False)
class ScriptedVerifier:
    """A verifier that gives *verdicts*, one for each time it is asked.

    Attributes:
        asked: what it was asked about, in order.
        before: called each time before it answers.
    """

    verdicts: list[Verdict]
    asked: list[RunResult] = attrs.field(factory=list, init=False)
    before: Callable[[], object] = attrs.field(default=bool, kw_only=True)

    async def __call__(self, result: RunResult) -> Verdict:
        """Give the next verdict."""
        self.asked.append(result)
        self.before()
        await trio.lowlevel.checkpoint()
        return self.verdicts[len(self.asked) - 1]


def verifier_and_gate(*verdicts: Verdict, attempts: int = 3) -> tuple[ScriptedVerifier, Completion]:
    """Return a verifier and the gate that asks it."""
    judge = ScriptedVerifier(list(verdicts))
    return judge, Completion(judge, attempts)


def gate(*verdicts: Verdict, attempts: int = 3) -> Completion:
    """Return a gate."""
    return verifier_and_gate(*verdicts, attempts=attempts)[1]


def failed(times: int, reason: str) -> str:
    """Return what stopped a run that its gate rejected, word for word."""
    return f"completion.verify failed {times}×: {reason}"  # noqa: RUF001 - a times sign
