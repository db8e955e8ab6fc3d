"""Guardrails and completion gates in durable runs: stored, told, and the same after a crash."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from hango import BeforeToolEvent, Effects, RunResult, ToolContext, Verdict, all_todos_done, tool
from hango.db.pool import Pool
from hango.domain import (
    ErrorCode,
    Gate,
    Limits,
    Message,
    Run,
    RunState,
    TextBlock,
    ToolResultBlock,
    Usage,
)
from hango.testing import Answer, FakeProvider, answer, call, text
from hango.testing.plugin import LeaseClock, SeededTenant, make_seeded_tenant, sql
from hango.tools.builtin import make_todowrite

TODO = Gate("all_todos_done", 3)
VERIFIERS = {"all_todos_done": all_todos_done}


def plan(*, done: bool) -> Answer:
    """Write down a list of one."""
    todo = {"id": "1", "text": "proofread", "completed": done}
    return answer(call("todowrite", {"todos": [todo]}), usage=Usage(10, 2))


def claims(words: str = "It is done.") -> Answer:
    """Say that it is done."""
    return answer(text(words), usage=Usage(10, 1))


async def story(world: SeededTenant, run: Run) -> Sequence[Message]:
    """Return what the run stored."""
    return await world.sessions.messages(world.scope(), run.session_id)


def places(messages: Sequence[Message]) -> list[tuple[int | None, str, bool]]:
    """Return turn, role, and whether hango wrote it."""
    return [(message.turn, message.role, message.synthetic) for message in messages]


@pytest.fixture
async def gated(hango_pool: Pool) -> SeededTenant:
    """Have an agent with a gate."""
    return await make_seeded_tenant(hango_pool, completion=TODO)


# --- gates ----------------------------------------------------------------------------------


@pytest.mark.rule(24)
@pytest.mark.rule(25)
async def test_what_a_gate_rejects_is_stored_and_another_attempt_made(gated: SeededTenant) -> None:
    """Attempts, turns and usage are the run's; what the gate said is the user message of its turn."""
    script = [plan(done=False), claims(), plan(done=True), claims()]
    provider = FakeProvider(script)
    async with gated.worker(provider, make_todowrite(), verifiers=VERIFIERS):
        run = await gated.ended(await gated.run(await gated.session()))
    stored = await story(gated, run)
    assert (run.state, run.error, run.stopped_by) == (RunState.SUCCEEDED, None, "")
    assert (run.attempts, run.iterations, run.resume_turn) == (2, 4, 4)
    assert run.usage == Usage(40, 6)
    assert run.final_message_id == stored[-1].id
    assert places(stored) == [
        (0, "user", False),
        (1, "assistant", False),
        (1, "user", False),
        (2, "assistant", False),
        (2, "user", True),
        (3, "assistant", False),
        (3, "user", False),
        (4, "assistant", False),
    ]
    told = "Your work did not verify: 1 item(s) still open: proofread. Fix it and finish."
    assert stored[4].content == (TextBlock(told),)
    assert provider.requests[2].messages[-1].content == (TextBlock(told),)


@pytest.mark.rule(24)
async def test_a_gate_that_is_never_satisfied_ends_the_run_as_incomplete(gated: SeededTenant) -> None:
    """B16: exactly so many attempts, then failed; what stopped it names gate, attempts and reason."""
    provider = FakeProvider([plan(done=False), claims(), claims(), claims()])
    async with gated.worker(provider, make_todowrite(), verifiers=VERIFIERS):
        run = await gated.ended(await gated.run(await gated.session()))
    reason = "completion.verify failed 3×: 1 item(s) still open: proofread"  # noqa: RUF001 - as told
    assert run.state is RunState.FAILED
    assert run.error
    assert (run.error.code, run.error.message) == (ErrorCode.INCOMPLETE, reason)
    assert (run.stopped_by, run.attempts, provider.calls) == (reason, 3, 4)
    stored = await story(gated, run)
    assert run.final_message_id == stored[-1].id
    assert places(stored)[-1] == (4, "assistant", False)


@pytest.mark.rule(24)
async def test_a_verifier_that_raises_is_an_error_and_the_session_goes_on(gated: SeededTenant) -> None:
    """The answer is kept, the run fails as `verifier_error`, and the next run is like any other."""

    def broken(result: RunResult) -> Verdict:
        raise ValueError(f"cannot read {result.text!r}")

    session = await gated.session()
    async with gated.worker(FakeProvider([claims(), claims()]), verifiers={"all_todos_done": broken}):
        run = await gated.ended(await gated.run(session))
    async with gated.worker(provider := FakeProvider([claims("Hello.")]), verifiers=VERIFIERS):
        after = await gated.ended(await gated.run(session, "and now?"))
    assert run.error
    assert (run.state, run.error.code, run.stopped_by) == (
        RunState.FAILED,
        ErrorCode.VERIFIER_ERROR,
        "verifier_error",
    )
    assert run.error.message == "ValueError: cannot read 'It is done.'"
    assert (after.state, provider.complaints) == (RunState.SUCCEEDED, [])


@pytest.mark.rule(24)
@pytest.mark.rule(8)
async def test_an_answer_stored_and_not_judged_is_judged_after_a_crash_and_not_bought_again(
    gated: SeededTenant, lease_clock: LeaseClock
) -> None:
    """The process dies while the verifier thinks, in the second attempt; its successor asks it anew."""
    asked: list[int] = []

    async def forever(result: RunResult) -> Verdict:
        asked.append(result.turns)
        if result.turns == 2:
            await trio.sleep_forever()
        return False, "not yet"

    def strict(result: RunResult) -> Verdict:
        asked.append(result.turns)
        return result.turns > 2, f"{result.usage.input_tokens} tokens are not enough"

    first = FakeProvider([claims("One."), claims("Two.")])
    async with gated.worker(first, verifiers={"all_todos_done": forever}) as doomed:
        run = await gated.run(await gated.session())
        await lease_clock.settle()
        assert asked == [1, 2]
        await doomed.kill()
    second = FakeProvider([claims("Three.")])
    async with gated.worker(second, verifiers={"all_todos_done": strict}), lease_clock.autojump():
        run = await gated.ended(run)
    assert asked == [1, 2, 2, 3]
    assert (first.calls, second.calls) == (2, 1)
    assert (run.state, run.attempts, run.iterations, run.usage) == (
        RunState.SUCCEEDED,
        3,
        3,
        Usage(30, 3),
    )
    texts = [message.content for message in await story(gated, run)]
    assert texts[2] == (TextBlock("Your work did not verify: not yet. Fix it and finish."),)
    assert texts[4] == (
        TextBlock("Your work did not verify: 20 tokens are not enough. Fix it and finish."),
    )


@pytest.mark.rule(24)
@pytest.mark.rule(10)
async def test_the_cap_of_the_run_names_the_verdicts_before_it_after_a_crash_too(
    hango_pool: Pool, lease_clock: LeaseClock
) -> None:
    """Attempts and the reason are read off what is stored, whoever caps the run."""
    world = await make_seeded_tenant(hango_pool, completion=TODO)
    await sql(hango_pool, """update agents set limits = '{"max_iterations": 2}'""")
    never = trio.Event()
    provider = FakeProvider([claims(), answer(call("wait"))])

    @tool(effects=Effects.READ_ONLY)
    async def wait() -> str:
        """Wait."""
        await never.wait()
        return "waited"

    async with world.worker(
        provider, wait, verifiers={"all_todos_done": lambda _: (False, "no")}
    ) as doomed:
        run = await world.run(await world.session())
        await provider.wait_for_calls(2)
        await lease_clock.settle()
        await doomed.kill()
    never.set()
    rescue = FakeProvider([])
    async with world.worker(rescue, wait, verifiers=VERIFIERS), lease_clock.autojump():
        run = await world.ended(run)
    assert run.error
    assert (run.error.code, run.attempts, rescue.calls) == (ErrorCode.ITERATION_CAP, 2, 0)
    assert run.stopped_by == "iteration_cap; completion.verify failed 1×: no"  # noqa: RUF001 - as told


@pytest.mark.rule(11)
@pytest.mark.rule(24)
async def test_a_cancel_reaches_a_run_that_is_being_judged(gated: SeededTenant) -> None:
    """Its answer is stored already; the verdict is not waited for."""
    thinking = trio.Event()

    async def slow(_: RunResult) -> Verdict:
        thinking.set()
        await trio.sleep_forever()
        raise AssertionError

    async with gated.worker(FakeProvider([claims()]), verifiers={"all_todos_done": slow}):
        run = await gated.run(await gated.session())
        await thinking.wait()
        await gated.runs.cancel(gated.scope(), run.id)
        run = await gated.ended(run)
    assert (run.state, run.attempts) == (RunState.CANCELLED, 1)
    assert places(await story(gated, run)) == [(0, "user", False), (1, "assistant", False)]


@pytest.mark.rule(24)
async def test_a_run_whose_time_is_up_while_it_is_judged_shows_the_answer_it_was_judged_by(
    hango_pool: Pool, lease_clock: LeaseClock
) -> None:
    """Its last answer is stored, and is its final message: not the one that was rejected before."""
    world = await make_seeded_tenant(hango_pool, completion=TODO, limits=Limits(run_deadline=60))

    async def slow_at_last(result: RunResult) -> Verdict:
        if result.turns == 2:
            await trio.sleep_forever()
        return False, "not yet"

    provider = FakeProvider([claims("One."), claims("Two.")])
    async with (
        world.worker(provider, verifiers={"all_todos_done": slow_at_last}),
        lease_clock.autojump(),
    ):
        run = await world.ended(await world.run(await world.session()))
    stored = await story(world, run)
    assert run.error
    assert (run.error.code, run.attempts) == (ErrorCode.DEADLINE_EXCEEDED, 2)
    assert stored[-1].content == (TextBlock("Two."),)
    assert run.final_message_id == stored[-1].id


# --- guardrails -----------------------------------------------------------------------------


@pytest.mark.rule(23)
async def test_a_denied_call_is_stored_as_an_error_result_and_its_tool_does_not_start(
    hango_pool: Pool,
) -> None:
    """Its siblings run; nothing of it is in the ledger."""
    world = await make_seeded_tenant(hango_pool, guardrails=["small_sums"])
    paid: list[int] = []

    @tool(effects=Effects.UNSAFE)
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    def small_sums(event: BeforeToolEvent) -> str:
        cents = event.args["cents"]
        return "" if isinstance(cents, int) and cents < 100 else f"{cents} is too much"

    asks = answer(*(call("pay", {"cents": cents}) for cents in (5, 500, 50)))
    async with world.worker(
        FakeProvider([asks, text("done")]), pay, guardrails={"small_sums": small_sums}
    ):
        run = await world.ended(await world.run(await world.session()))
    results = (await story(world, run))[2].content
    assert [(b.content, b.is_error) for b in results if isinstance(b, ToolResultBlock)] == [
        ("paid", False),
        ("denied: 500 is too much", True),
        ("paid", False),
    ]
    assert sorted(paid) == [5, 50]
    rows = await sql(hango_pool, "select ordinal, state from tool_effects order by ordinal")
    assert [tuple(row) for row in rows] == [(0, "finished"), (2, "finished")]
    assert run.state is RunState.SUCCEEDED


@pytest.mark.rule(9)
@pytest.mark.rule(23)
@pytest.mark.parametrize("finished", [True, False])
async def test_a_call_that_had_begun_is_not_told_to_be_denied_as_if_it_had_not(
    hango_pool: Pool, lease_clock: LeaseClock, *, finished: bool
) -> None:
    """A crash, and today's guardrail would deny what yesterday's permitted: the truth is told."""
    world = await make_seeded_tenant(hango_pool, guardrails=["mood"])
    reached = trio.Event()

    @tool(effects=Effects.UNSAFE)
    async def post(context: ToolContext) -> str:
        """Post."""
        if context.ordinal == 0 and finished:
            return "posted"
        reached.set()
        await trio.sleep_forever()
        raise AssertionError

    script = [answer(*[call("post")] * (2 if finished else 1))]
    async with world.worker(FakeProvider(script), post, guardrails={"mood": lambda _: None}) as doomed:
        run = await world.run(await world.session())
        await reached.wait()
        await lease_clock.settle()
        await doomed.kill()
    rescue = FakeProvider([text("done")])
    async with (
        world.worker(rescue, post, guardrails={"mood": lambda _: "not today"}),
        lease_clock.autojump(),
    ):
        run = await world.ended(run)
    first = (await story(world, run))[2].content[0]
    assert isinstance(first, ToolResultBlock)
    began = "denied: not today; it was started before that and cut short, so it may have taken effect"
    assert (first.content, first.is_error) == (("posted", False) if finished else (began, True))
    assert run.state is RunState.SUCCEEDED
