"""Runs in this process: what is refused before any request, its limits, and a loop that is in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hango import (
    Agent,
    BeforeToolEvent,
    Completion,
    Guardrail,
    Limits,
    Loop,
    RunResult,
    Toolkit,
    Verifier,
    tool,
)
from hango.domain import Effects, ModelOptions
from hango.errors import InvalidInput, LoopBusy, RegistrationError
from hango.testing import FakeProvider, call, hanging, text, waiting

from support.gates import PASS, gate


async def passes(_: RunResult) -> tuple[bool, str]:
    """Let it pass."""
    return True, ""


async def deny(_: BeforeToolEvent) -> str:
    """Deny."""
    return "not today"


def attempts(number: object) -> Agent:
    """Return an agent with a gate of *number* attempts."""
    return Agent("a", completion=Completion(passes, cast("int", number)))


def verified_by(verify: object) -> Agent:
    """Return an agent with a gate that asks *verify*."""
    return Agent("a", completion=Completion(cast("Verifier", verify), 3))


def limited(**limits: object) -> Agent:
    """Return an agent with *limits*."""
    return Agent("a", limits=Limits(**limits))  # type: ignore[arg-type]  # wrong ones, too


def guarded_by(*guardrails: object) -> Agent:
    """Return an agent with *guardrails*."""
    return Agent("a", guardrails=cast("Sequence[Guardrail]", guardrails))


def made_with(field: str, value: object) -> Agent:
    """Return an agent with one thing of a wrong type."""
    return Agent("a", **{field: value})  # type: ignore[arg-type]  # on purpose


# --- refused before any request -------------------------------------------------------------


@pytest.mark.rule(24)
@pytest.mark.parametrize(
    ("agent", "field"),
    [
        *((attempts(number), "completion.max_attempts") for number in (True, 0, -1, 2.0, "3", None)),
        *((verified_by(verify), "completion.verify") for verify in (None, "all_todos_done", True)),
        *((made_with(word, 5), word) for word in ("description", "instructions", "model")),
        (made_with("completion", passes), "completion"),
        (made_with("limits", {"max_iterations": 3}), "limits"),
        (made_with("model_options", {"top_p": 1}), "model_options"),
        *(
            (made_with("model_options", options), f"model_options.{next(iter(options.given()))}")
            for options in (
                ModelOptions(temperature=float("nan")),
                ModelOptions(top_p=0),
                ModelOptions(max_tokens=True),
                ModelOptions(tool_choice="no_such_tool"),
                ModelOptions(stop_sequences=("",)),
                ModelOptions(extra={"x": {1, 2}}),
            )
        ),
        (guarded_by(deny, "no shells"), "guardrails.1"),
        (guarded_by(None), "guardrails.0"),
        *(
            (limited(max_iterations=number), "limits.max_iterations")
            for number in (0, -1, 2.0, "3", True)
        ),
        *((limited(max_tokens=number), "limits.max_tokens") for number in (0, 1.5, False)),
        *((limited(tool_timeout=number), "limits.tool_timeout") for number in (0, -1, "5", True)),
        *(
            (limited(run_deadline=number), "limits.run_deadline")
            for number in (0, -0.5, float("nan"), float("inf"))
        ),
    ],
    ids=str,
)
async def test_an_agent_that_cannot_be_used_is_refused_before_any_request(
    agent: Agent, field: str
) -> None:
    """When its run starts; the field is named, and the loop is as it was."""
    provider = FakeProvider([text("hi")])
    async with Toolkit() as toolkit:
        loop = agent.loop(provider, toolkit)
        with pytest.raises(InvalidInput) as raised:
            await loop.run("do it")
    assert raised.value.field == field
    assert provider.calls == 0
    assert (loop.status, loop.turns) == ("idle", 0)


@pytest.mark.rule(24)
def test_an_agent_that_cannot_be_used_can_be_made() -> None:
    """It is its run that is refused, so that agents may be made anywhere."""
    attempts(0).loop(FakeProvider([]), Toolkit())


@pytest.mark.parametrize("prompt", [None, 5, b"hi", ["hi"]])
async def test_a_prompt_is_a_text(prompt: object) -> None:
    """Nothing is asked about anything else."""
    provider = FakeProvider([text("hi")])
    async with Toolkit() as toolkit:
        with pytest.raises(InvalidInput, match="must be a string") as raised:
            await Agent("a").loop(provider, toolkit).run(cast("str", prompt))
    assert raised.value.field == "prompt"
    assert provider.calls == 0


@pytest.mark.rule(20)
async def test_a_hostile_prompt_and_soul_are_sent_clean() -> None:
    """C01: NUL and half characters."""
    provider = FakeProvider([text("hi")])
    async with Toolkit() as toolkit:
        await Agent("a", soul="be\0brief").loop(provider, toolkit).run("do\ud800it")
    assert provider.complaints == []
    assert provider.requests[0].system == "be\ufffdbrief"


async def test_a_toolkit_that_is_not_open_is_refused() -> None:
    """Neither before it is opened nor after it is closed."""
    toolkit = Toolkit()
    provider = FakeProvider([text("hi")])
    loop = Agent("a").loop(provider, toolkit)
    with pytest.raises(RegistrationError, match="open"):
        await loop.run("do it")
    async with toolkit:
        assert (await loop.run("do it")).status == "done"
    with pytest.raises(RegistrationError, match="open"):
        await loop.run("do it")
    assert provider.calls == 1


@pytest.mark.rule(23)
@pytest.mark.parametrize("make", [iter, list, tuple, lambda items: (item for item in items)])
async def test_guardrails_hold_in_whatever_they_are_given(
    make: Callable[[list[Guardrail]], Sequence[Guardrail]],
) -> None:
    """Something that can be looked through once must not deny nothing after that."""
    given = [deny]
    agent = Agent("a", guardrails=make(cast("list[Guardrail]", given)))
    given.clear()
    for _ in range(2):
        async with Toolkit() as toolkit:
            outcome = await agent.loop(FakeProvider([call("get_time"), text("done")]), toolkit).run("x")
        assert outcome.result.tool_calls[0].output == "denied: not today"


# --- a loop in use --------------------------------------------------------------------------


async def test_a_loop_runs_one_thing_at_a_time() -> None:
    """It says that it is running, refuses a second run, and the first one never notices."""
    opened = trio.Event()
    provider = FakeProvider([waiting(opened, text("hi")), text("again")])
    async with Toolkit() as toolkit:
        loop = Agent("a").loop(provider, toolkit)
        assert (loop.status, loop.turns) == ("idle", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.run, "do it")
            await provider.wait_for_calls(1)
            assert (loop.status, loop.turns) == ("running", 0)
            with pytest.raises(LoopBusy):
                await loop.run("do it, too")
            assert loop.status == "running"
            opened.set()
        assert (loop.status, loop.turns) == ("idle", 1)
        assert (await loop.run("again")).text == "again"
    assert [len(request.messages) for request in provider.requests] == [1, 1]


async def test_a_tool_cannot_run_the_loop_it_is_called_by() -> None:
    """That is an error of the call like any other."""
    loops: list[Loop] = []

    @tool(effects=Effects.READ_ONLY)
    async def again() -> str:
        return (await loops[0].run("again")).text

    async with Toolkit([again]) as toolkit:
        loops.append(Agent("a").loop(FakeProvider([call("again"), text("done")]), toolkit))
        outcome = await loops[0].run("do it")
    assert outcome.status == "done"
    assert outcome.result.tool_calls[0].output.startswith("LoopBusy: ")


async def test_a_cancelled_run_is_cancelled_and_its_loop_can_run_again() -> None:
    """Nothing comes back; the status is that of a run that did not end well."""
    provider = FakeProvider([hanging(text("so")), text("hi")])
    async with Toolkit() as toolkit:
        loop = Agent("a", completion=gate(PASS)).loop(provider, toolkit)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loop.run, "do it")
                await wait_all_tasks_blocked()
                scope.cancel()
        assert (loop.status, loop.turns, provider.closed) == ("error", 0, 1)
        assert (await loop.run("again")).status == "done"
        assert loop.status == "idle"


async def test_what_a_provider_raises_is_the_outcome() -> None:
    """R-F1: also a mistake in a script of a test; the loop is left in order."""
    provider = FakeProvider([])
    async with Toolkit() as toolkit:
        loop = Agent("a").loop(provider, toolkit)
        outcome = await loop.run("do it")
    assert outcome.status == loop.status == "error"
    assert "AssertionError: call 1 of a script of 0 answers" in outcome.stopped_by
