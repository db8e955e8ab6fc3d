"""The limits of an agent hold in runs in this process: turns, time of a tool and of the run, tokens."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from hango import Agent, Completion, Limits, ModelOptions, RunResult, Toolkit, tool
from hango.domain import Effects
from hango.testing import Answer, FakeProvider, answer, call, hanging, text

from support.gates import failed, gate, no


@pytest.mark.parametrize("tokens", [None, 77])
async def test_the_tokens_of_an_answer_are_asked_for(tokens: int | None) -> None:
    """In every request; without a limit the provider has its own."""
    provider = FakeProvider([call("get_time"), text("hi")])
    async with Toolkit() as toolkit:
        await Agent("a", limits=Limits(max_tokens=tokens)).loop(provider, toolkit).run("do it")
    assert [request.max_tokens for request in provider.requests] == [tokens] * 2


async def test_a_forced_tool_is_asked_for_in_the_first_answer_only() -> None:
    """Asked for in each, no run would end; the others are sent in all, with the smaller bound."""
    provider = FakeProvider([call("get_time"), text("hi")])
    options = ModelOptions(temperature=0.5, max_tokens=50, tool_choice="get_time")
    agent = Agent("a", limits=Limits(max_tokens=77), model_options=options)
    async with Toolkit() as toolkit:
        outcome = await agent.loop(provider, toolkit).run("do it")
    assert outcome.status == "done"
    assert [request.options.tool_choice for request in provider.requests] == ["get_time", None]
    assert [request.options.temperature for request in provider.requests] == [0.5] * 2
    assert [request.max_tokens for request in provider.requests] == [50] * 2


@pytest.mark.rule(17)
async def test_the_cap_holds_and_is_never_a_silent_done() -> None:
    """B13: even if every answer said that all is done; hango's own words are the last."""
    claim = answer(text("All done!"), call("get_time"))
    provider = FakeProvider([claim] * 3)
    async with Toolkit() as toolkit:
        loop = Agent("a", limits=Limits(max_iterations=2)).loop(provider, toolkit)
        outcome = await loop.run("do it")
    assert (outcome.status, outcome.stopped_by) == ("incomplete", "iteration_cap")
    assert "limit of 2 iterations" in outcome.text
    assert (outcome.turns, loop.turns, provider.calls) == (2, 2, 2)
    assert len(outcome.result.tool_calls) == 2
    assert loop.status == "incomplete"


@pytest.mark.rule(17)
@pytest.mark.rule(24)
async def test_the_cap_is_of_the_run_and_names_a_rejection_before() -> None:
    """Not of an attempt: what a gate sends back counts."""
    agent = Agent("a", limits=Limits(max_iterations=2), completion=gate(no("no tests"), attempts=9))
    async with Toolkit() as toolkit:
        provider = FakeProvider([text("done"), call("get_time")])
        outcome = await agent.loop(provider, toolkit).run("do it")
    assert outcome.status == "incomplete"
    assert outcome.stopped_by == f"iteration_cap; {failed(1, 'no tests')}"
    assert (outcome.attempts, outcome.turns) == (2, 2)


@pytest.mark.rule(17)
async def test_without_a_limit_the_cap_is_that_of_the_settings() -> None:
    """A direct run is not without bounds either."""
    provider = FakeProvider(lambda _: call("get_time"))
    async with Toolkit() as toolkit:
        outcome = await Agent("a").loop(provider, toolkit).run("do it")
    assert (outcome.stopped_by, outcome.turns) == ("iteration_cap", 20)


@tool(effects=Effects.READ_ONLY)
async def sleep() -> None:
    """Never come to a result."""
    await trio.sleep_forever()


@pytest.mark.rule(18)
@pytest.mark.parametrize(("limit", "seconds"), [(5.0, 5), (None, 30)])
async def test_a_tool_has_the_time_its_agent_gives_it(
    limit: float | None, seconds: float, autojump_clock: MockClock
) -> None:
    """And as much as a durable run's where it says nothing."""
    async with Toolkit([sleep]) as toolkit:
        agent = Agent("a", limits=Limits(tool_timeout=limit))
        outcome = await agent.loop(FakeProvider([call("sleep"), text("sorry")]), toolkit).run("do it")
    assert outcome.status == "done"
    assert outcome.result.tool_calls[0].output == f"sleep took longer than {seconds} s and was stopped"
    assert autojump_clock.current_time() == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize(
    ("agent", "script", "said", "turns"),
    [
        (Agent("a", limits=Limits(run_deadline=7.5)), [hanging(text("so"))], "so", 0),
        (Agent("a", limits=Limits(run_deadline=7.5, tool_timeout=60)), [answer(call("sleep"))], "", 0),
        (
            Agent("a", limits=Limits(run_deadline=7.5), completion=gate(no("no tests"))),
            [answer(text("one")), hanging()],
            "one",
            1,
        ),
    ],
    ids=["stream", "tool", "second attempt"],
)
async def test_a_run_past_its_deadline_is_an_error_and_keeps_what_arrived(
    agent: Agent, script: list[Answer], said: str, turns: int, autojump_clock: MockClock
) -> None:
    """Whatever it was at; and says how long it had."""
    async with Toolkit([sleep]) as toolkit:
        loop = agent.loop(FakeProvider(script), toolkit)
        outcome = await loop.run("do it")
    rejected = f"; {failed(1, 'no tests')}" if agent.completion else ""
    late = "deadline_exceeded: the run took longer than 7.5 s"
    assert (outcome.status, outcome.stopped_by) == ("error", late + rejected)
    assert (outcome.text, outcome.turns, loop.turns, loop.status) == (said, turns, turns, "error")
    assert autojump_clock.current_time() == pytest.approx(7.5, abs=1)


@pytest.mark.rule(24)
async def test_a_verifier_has_no_more_time_than_its_run(autojump_clock: MockClock) -> None:
    """A gate that hangs is cut short by the deadline; the answer is kept."""

    async def hang(_: RunResult) -> tuple[bool, str]:
        await trio.sleep_forever()

    agent = Agent("a", limits=Limits(run_deadline=5), completion=Completion(hang, 3))
    async with Toolkit() as toolkit:
        outcome = await agent.loop(FakeProvider([text("done")]), toolkit).run("do it")
    assert (outcome.text, outcome.status, outcome.attempts) == ("done", "error", 1)
    assert outcome.stopped_by == "deadline_exceeded: the run took longer than 5 s"
    assert autojump_clock.current_time() == pytest.approx(5, abs=1)
