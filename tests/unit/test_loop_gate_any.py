"""Whatever a model says and a gate finds: bounded, never silent, and valid for every API."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hango import BeforeToolEvent, Completion, Effects, RunResult, Verdict, tool
from hango.agent import LoopLimits
from hango.domain import (
    OutcomeStatus,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    Usage,
)
from hango.testing import Answer, answer

from support.gates import failed
from support.loop_bench import Bench, says
from support.tools import shout, view_of

BLOCKS = st.one_of(
    st.builds(TextBlock, st.sampled_from(["", " ", "so", "done"])),
    st.builds(ThinkingBlock, st.just("hm"), st.sampled_from(["", "c2ln"])),
    st.builds(
        ToolUseBlock,
        st.sampled_from(["", "a", "b", "no id!"]),
        st.sampled_from(["shout", "forbidden", "made up"]),
        raw_input=st.sampled_from([None, "{"]),
    ),
)
STOPS = st.sampled_from([None, *(stop for stop in StopReason if stop is not StopReason.PAUSE_TURN)])
ANSWERS = st.builds(
    lambda blocks, stop: answer(*blocks, stop=stop, usage=Usage(10, 1)),
    st.lists(BLOCKS, max_size=4),
    STOPS,
)


async def forbid(event: BeforeToolEvent) -> str:
    """Deny one tool."""
    return "no" if event.name == "forbidden" else "allow"


@attrs.define(eq=False)
class Trial:
    """One run.

    Attributes:
        verdicts: what its gate says, then that all is well.
        judged: how often it was asked.
        ran: the tools whose bodies ran.
    """

    script: Sequence[Answer]
    verdicts: Sequence[Verdict]
    attempts: int
    cap: int
    judged: int = 0
    ran: set[str] = attrs.field(factory=set)

    async def verify(self, _: RunResult) -> Verdict:
        """Give the next verdict."""
        self.judged += 1
        return self.verdicts[self.judged - 1] if self.judged <= len(self.verdicts) else (True, "")

    def bench(self) -> Bench:
        """Return the run and its world."""

        @tool(effects=Effects.UNSAFE)
        async def forbidden() -> None:
            self.ran.add("forbidden")

        bench = Bench(
            [*self.script, *[says("done")] * self.cap],
            limits=LoopLimits(max_iterations=self.cap),
            guardrails=[forbid],
            completion=Completion(self.verify, self.attempts),
        )
        bench.toolbox = view_of(forbidden, shout)
        return bench


TRIALS = st.builds(
    Trial,
    st.lists(ANSWERS, max_size=6),
    st.lists(st.tuples(st.booleans(), st.sampled_from(["", "a. Fix it", "no tests"])), max_size=4),
    st.integers(1, 3),
    st.integers(1, 6),
)


@pytest.mark.rule(14)
@pytest.mark.rule(23)
@pytest.mark.rule(24)
@given(TRIALS)
def test_any_run_with_a_gate_ends_and_says_why(trial: Trial) -> None:
    """Within its attempts and its cap, with requests every API takes, and nothing forbidden run."""
    bench = trial.bench()
    outcome = trio.run(bench.run)
    assert bench.provider.complaints == []
    assert trial.ran == set()
    assert bench.provider.calls <= trial.cap
    assert trial.judged <= trial.attempts
    assert outcome.usage == Usage(10 * bench.provider.calls, bench.provider.calls)
    done = outcome.status is OutcomeStatus.DONE
    assert (outcome.stopped_by == "") == (outcome.error is None) == done
    said = [reason or "unspecified" for passed, reason in trial.verdicts[: trial.judged] if not passed]
    if said and not done:
        assert outcome.stopped_by.endswith(failed(len(said), said[-1]))


@pytest.mark.rule(14)
@pytest.mark.rule(24)
@given(TRIALS)
def test_after_any_run_with_a_gate_the_session_goes_on(trial: Trial) -> None:
    """However it ended, what it left is a conversation that can be sent."""
    bench, after = trial.bench(), Bench([says("hello")])
    trio.run(bench.run)
    after.transcript._messages.extend(bench.transcript.messages)
    trio.run(after.run)
    assert after.provider.complaints == []
    assert after.provider.calls == 1
