"""Runs in this process: the outcome of a run of `Agent.loop`, and what the loop says of itself."""

from __future__ import annotations

from typing import cast

import pytest

from hango import (
    Agent,
    Completion,
    Guardrail,
    Loop,
    Outcome,
    Toolkit,
    all_todos_done,
    loop_unsupported,
    tool,
)
from hango.domain import JsonObject, StopReason, TextBlock, Usage
from hango.errors import ProviderError, RegistrationError
from hango.testing import Answer, FakeProvider, answer, call, failing, text

from support.gates import PASS, failed, gate, no, verifier_and_gate

USAGE = Usage(10, 5)  # of each answer of a script


def todo(number: int, words: str, *, completed: bool) -> JsonObject:
    """Return an item of a list."""
    return {"id": str(number), "text": words, "completed": completed}


def plan(*todos: JsonObject) -> Answer:
    """Write the list."""
    return answer(call("todowrite", {"todos": list(todos)}))


DRAFT = todo(1, "draft", completed=True)
HALF = plan(DRAFT, todo(2, "proofread", completed=False))
WHOLE = plan(DRAFT, todo(2, "proofread", completed=True))
TODOS_DONE = Completion(all_todos_done, 3)


async def run(agent: Agent, *script: Answer, builtins: bool = True) -> tuple[Outcome, Loop]:
    """Run *agent* once."""
    async with Toolkit(builtins=builtins) as toolkit:
        loop = agent.loop(FakeProvider(script), toolkit)
        return await loop.run("do it"), loop


# --- the three examples of the document -----------------------------------------------------


async def test_without_a_gate_one_attempt_is_all() -> None:
    """The smallest useful call: done, one attempt, nothing that stopped it, and idle again."""
    agent = Agent("plain", does="answers", soul="be brief")
    outcome, loop = await run(agent, answer(text("hi there")), builtins=False)
    assert (outcome.text, outcome.status, outcome.stopped_by) == ("hi there", "done", "")
    assert (outcome.attempts, outcome.turns) == (1, 1)
    assert outcome.result.usage == USAGE
    assert (loop.status, loop.turns, loop.unsupported()) == ("idle", 1, [])


@pytest.mark.rule(25)
async def test_a_gate_blocks_an_early_claim_and_then_passes() -> None:
    """The realistic case: the first claim has an open item, the second has none."""
    script = (HALF, answer(text("claiming done")), WHOLE, answer(text("really done")))
    outcome, loop = await run(Agent("worker", completion=TODOS_DONE), *script)
    assert (outcome.text, outcome.status, outcome.stopped_by) == ("really done", "done", "")
    assert (outcome.attempts, outcome.turns, loop.turns) == (2, 4, 4)
    assert [message.turn for message in outcome.result.messages if message.synthetic] == [2]
    assert [call.output for call in outcome.result.tool_calls] == [
        "[x] draft\n[ ] proofread",
        "[x] draft\n[x] proofread",
    ]


def test_what_a_run_ignores_is_named_in_order() -> None:
    """By the names of the fields, always in the same order."""
    everything = Agent(
        "coordinator",
        does="coordinates",
        team=[Agent("helper")],
        wait_for=lambda _: None,
        on_metric=lambda _: None,
    )
    expected = ["team", "wait_for", "on_metric"]
    assert loop_unsupported(everything) == expected
    loop = everything.loop(FakeProvider([]), Toolkit(builtins=False))
    assert loop.unsupported() == expected


@pytest.mark.rule(24)
async def test_an_agents_own_tools_are_used_and_what_is_ignored_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W-H6: what an agent declares is never dropped without a word."""

    @tool(effects="read_only")
    def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    agent = Agent("a", tools=iter([shout]), team=[Agent("b")])  # type: ignore[arg-type]  # used up once
    for _ in range(2):
        outcome, _loop = await run(agent, answer(call("shout", {"text": "hi"})), answer(text("done")))
        assert outcome.result.tool_calls[0].output == "HI"
    assert caplog.messages[0] == "agent 'a': a run in this process ignores ['team']"


@tool(effects="read_only", name="get_time")
def get_time_again() -> str:
    """Tell the time."""
    return "noon"


@pytest.mark.parametrize(
    ("tools", "problem"),
    [([len], "not a tool"), ([get_time_again], "name is taken"), ([None], "not a tool")],
)
async def test_own_tools_that_cannot_be_used_are_refused(tools: list[object], problem: str) -> None:
    """Before any request, and the loop can run again."""
    provider = FakeProvider([text("hi")])
    async with Toolkit() as toolkit:
        loop = Agent("a", tools=tools).loop(provider, toolkit)
        with pytest.raises(RegistrationError, match=problem):
            await loop.run("do it")
    assert provider.calls == 0


class Silent:
    """A sink that is empty, and so is false."""

    def __len__(self) -> int:
        """Have nothing yet."""
        return 0

    def __call__(self, _: object) -> None:
        """Take a metric."""


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (Agent("a"), []),
        (Agent("a", soul="s", model="m", guardrails=[Silent()], completion=TODOS_DONE), []),
        (Agent("a", tools=(), team=[]), []),
        (Agent("a", on_metric=Silent(), tools=[None]), ["on_metric"]),
        (Agent("a", wait_for=Silent()), ["wait_for"]),
        (Agent("a", wait_for=0, team=(Agent("b"),)), ["team", "wait_for"]),
    ],
)
def test_what_is_declared_is_named_and_nothing_else(agent: Agent, expected: list[str]) -> None:
    """Something is declared when it is there, whether or not it is true to Python."""
    assert loop_unsupported(agent) == expected


# --- B16, B17 -------------------------------------------------------------------------------


@pytest.mark.rule(24)
@pytest.mark.rule(25)
async def test_a_gate_that_never_opens_ends_after_exactly_its_attempts() -> None:
    """B16: always done with one open item; what stopped it names the gate and the item."""
    done = answer(text("done"))
    provider = FakeProvider([HALF, done, done, done])
    async with Toolkit() as toolkit:
        loop = Agent("worker", completion=TODOS_DONE).loop(provider, toolkit)
        outcome = await loop.run("do it")
    reason = "1 item(s) still open: proofread"
    assert (outcome.status, outcome.stopped_by) == ("incomplete", failed(3, reason))
    assert (outcome.text, outcome.attempts, outcome.turns, provider.calls) == ("done", 3, 4, 4)
    assert loop.status == "incomplete"
    told = TextBlock(f"Your work did not verify: {reason}. Fix it and finish.")
    assert [request.messages[-1].content for request in provider.requests[2:]] == [(told,)] * 2


@pytest.mark.rule(25)
async def test_an_agent_without_the_tool_is_not_held_up() -> None:
    """B16: no plan was declared, so there is nothing open; nor by a call of a tool it has not."""
    outcome, _ = await run(
        Agent("worker", completion=TODOS_DONE), HALF, answer(text("done")), builtins=False
    )
    assert (outcome.status, outcome.attempts) == ("done", 1)
    assert outcome.result.tool_calls[0].is_error


@pytest.mark.rule(25)
@pytest.mark.parametrize(
    "evasion",
    [
        plan(),
        plan(todo(2, "proofread", completed=cast("bool", "true"))),
        answer(call("todowrite", {"todos": "all done"})),
        answer(call("todowrite", '{"todos": [')),
        answer(call("todowrite", {})),
    ],
    ids=["emptied", "nearly true", "no list", "no object", "nothing"],
)
async def test_a_list_is_not_completed_by_spoiling_it(evasion: Answer) -> None:
    """B17: what was open stays open, whatever was written after it."""
    script = (HALF, evasion, answer(text("done")))
    outcome, _ = await run(Agent("worker", completion=Completion(all_todos_done, 1)), *script)
    assert outcome.stopped_by == failed(1, "1 item(s) still open: proofread")


@pytest.mark.rule(23)
@pytest.mark.rule(25)
async def test_a_list_that_a_guardrail_denied_is_not_the_last_one() -> None:
    """B17: neither when it would complete, nor when it would open something."""
    deny_second: Guardrail = lambda event: "no" if event.turn == 2 else ""  # noqa: E731 - typed by its name
    worker = Agent("w", guardrails=[deny_second], completion=Completion(all_todos_done, 1))
    outcome, _ = await run(worker, HALF, WHOLE, answer(text("done")))
    assert outcome.stopped_by == failed(1, "1 item(s) still open: proofread")
    outcome, _ = await run(worker, WHOLE, HALF, answer(text("done")))
    assert outcome.status == "done"


# --- how it ends ----------------------------------------------------------------------------


async def test_an_error_is_named_with_its_cause() -> None:
    """There is no other place for it here; and the loop can run again."""
    async with Toolkit() as toolkit:
        script = [failing(ProviderError("quota", code="429")), answer(text("hi"))]
        loop = Agent("a").loop(FakeProvider(script), toolkit)
        outcome = await loop.run("do it")
        assert (outcome.status, outcome.stopped_by) == ("error", "provider_error: 429: quota")
        assert (outcome.text, outcome.attempts, outcome.turns) == ("", 1, 0)
        assert (loop.status, loop.turns) == ("error", 0)
        assert (await loop.run("again")).status == "done"
        assert (loop.status, loop.turns) == ("idle", 1)


@pytest.mark.rule(24)
async def test_a_verifier_that_fails_is_an_error_and_names_what_it_raised() -> None:
    """And the verdicts before it, if there were any."""

    def verify(result: object) -> tuple[bool, str]:  # noqa: ARG001 - it does not get that far
        raise LookupError("no list")

    outcome, loop = await run(Agent("a", completion=Completion(verify, 2)), answer(text("done")))
    named = "verifier_error: LookupError: no list"
    assert (outcome.status, outcome.stopped_by, loop.status) == ("error", named, "error")
    assert (outcome.text, outcome.attempts, outcome.turns) == ("done", 1, 1)

    judge, completion = verifier_and_gate(no("no tests"))  # it has no second verdict to give
    outcome, _ = await run(Agent("a", completion=completion), *[answer(text("done"))] * 2)
    assert outcome.stopped_by.startswith("verifier_error: IndexError")
    assert outcome.stopped_by.endswith("; " + failed(1, "no tests"))
    assert (outcome.attempts, len(judge.asked)) == (2, 2)


@pytest.mark.rule(24)
async def test_an_outcome_has_what_a_verifier_would_be_asked_about() -> None:
    """The result of the last verdict is the result of the run."""
    judge, completion = verifier_and_gate(no("no tests"), PASS)
    outcome, _ = await run(Agent("a", completion=completion), HALF, *[answer(text("done"))] * 2)
    assert outcome.result == judge.asked[-1]


@pytest.mark.rule(24)
@pytest.mark.parametrize("stop", [StopReason.MAX_TOKENS, StopReason.REFUSAL])
async def test_a_partial_answer_of_a_whole_run_is_done_unless_a_gate_says_otherwise(
    stop: StopReason,
) -> None:
    """Hango does not judge; a gate does."""
    cut = answer(text("I can"), stop=stop)
    outcome, _ = await run(Agent("a"), cut)
    assert (outcome.text, outcome.status) == ("I can", "done")
    outcome, _ = await run(Agent("a", completion=gate(no("not all"), attempts=1)), cut)
    assert (outcome.status, outcome.stopped_by) == ("incomplete", failed(1, "not all"))
