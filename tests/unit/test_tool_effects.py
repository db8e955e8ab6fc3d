"""Calls that must not just run twice: what is recorded when, and what runs the next time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.domain import EarlierCall, Effects, Ledger, Result, ToolContext, ToolUseBlock
from hango.errors import StateConflict, StoreUnavailable
from hango.telemetry import names
from hango.testing import MemoryLedger
from hango.tools import Threads, Tool, ToolSet, tool
from hango.tools.replay import RECORD_GRACE

from support.counters import counted
from support.tools import CONTEXT, LIMIT, cancel_when_blocked, counting, registry_of, view_of

RECORDED = pytest.mark.parametrize("effects", [Effects.KEYED, Effects.UNSAFE])
HARMLESS = pytest.mark.parametrize("effects", [Effects.READ_ONLY, Effects.IDEMPOTENT])
KEY = (CONTEXT.run_id, CONTEXT.turn, CONTEXT.ordinal)
CALL = ToolUseBlock("c1", "t")


async def nothing() -> None:
    """Do nothing."""


@attrs.define
class Journal:
    """A ledger, and a tool ``t``, that write down what happens, in one list.

    Attributes:
        happened: ``begin``, ``body``, ``finish``, as each is done.
        before: awaited before a write of that name is sent, and in the body; a write that has been
            sent is done, whoever is cancelled.
        keys: the idempotency key of each time the body ran.
    """

    happened: list[str] = attrs.field(factory=list)
    before: dict[str, Callable[[], Awaitable[object]]] = attrs.field(factory=dict)
    keys: list[str] = attrs.field(factory=list)
    memory: MemoryLedger = attrs.field(factory=MemoryLedger)

    async def begin(self, context: ToolContext, tool: str, effects: Effects) -> EarlierCall | None:
        """Record in memory, and that it was."""
        await self.before.get("begin", nothing)()
        with trio.CancelScope(shield=True):
            earlier = await self.memory.begin(context, tool, effects)
        self.happened.append("begin")
        return earlier

    async def earlier(self, context: ToolContext) -> EarlierCall | None:
        """Look into the memory."""
        return await self.memory.earlier(context)

    async def finish(self, context: ToolContext, result: Result) -> None:
        """Record in memory, and that it was."""
        await self.before.get("finish", nothing)()
        with trio.CancelScope(shield=True):
            await self.memory.finish(context, result)
        self.happened.append("finish")

    def tool(self, effects: Effects) -> Tool:
        """Return the tool."""

        async def t(context: ToolContext) -> Result:
            self.happened.append("body")
            self.keys.append(context.idempotency_key)
            await self.before.get("body", nothing)()
            return Result("paid", f"paid, at call {len(self.keys)}")

        return tool(effects=effects)(t)

    async def call(self, effects: Effects) -> Result:
        """Call the tool."""
        return await view_of(self.tool(effects)).call(CALL, CONTEXT, self)

    @property
    def recorded(self) -> EarlierCall | None:
        """What is recorded of the call."""
        return self.memory.calls.get(KEY)


async def cut_short(effects: Effects) -> Journal:
    """Have a journal in which one execution ended while the body ran, as by a crash."""
    journal = Journal(before={"body": trio.sleep_forever})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when_blocked, nursery.cancel_scope)
        await journal.call(effects)
    journal.before.clear()
    return journal


async def call_in(view: ToolSet, name: str, ledger: Ledger) -> Result:
    """Call the tool *name* of *view*."""
    return await view.call(ToolUseBlock("c1", name), CONTEXT, ledger)


# --- what is recorded -----------------------------------------------------------------------


@pytest.mark.rule(9)
@RECORDED
async def test_a_call_is_recorded_before_its_body_and_its_result_after(effects: Effects) -> None:
    """What the ledger has is what the caller got, to the last field."""
    journal = Journal()
    result = await journal.call(effects)
    assert journal.happened == ["begin", "body", "finish"]
    assert result == Result("paid", "paid, at call 1")
    assert journal.recorded == EarlierCall(effects, result)


@pytest.mark.rule(9)
@HARMLESS
async def test_what_may_run_twice_is_not_recorded(effects: Effects) -> None:
    """No write, before or after, and nothing that could fail."""
    journal = Journal()
    await journal.call(effects)
    assert journal.happened == ["body"]
    assert journal.recorded is None


@pytest.mark.rule(9)
@pytest.mark.parametrize(
    "call",
    [
        ToolUseBlock("c1", "no_such_tool"),
        ToolUseBlock("c1", "forbidden"),
        ToolUseBlock("c1", "t", raw_input="[]"),
        ToolUseBlock("c1", "t", {"extra": 1}),
    ],
    ids=["unknown", "not allowed", "not an object", "against the schema"],
)
async def test_a_call_that_is_refused_is_not_recorded(call: ToolUseBlock) -> None:
    """Its body did not run, so it has not taken effect, and nobody may be told that it may have."""
    journal = Journal()
    other = tool(effects=Effects.UNSAFE, name="forbidden")(nothing)
    view = registry_of(journal.tool(Effects.UNSAFE), other).view(["t"], timeout=1, result_limit=LIMIT)
    assert (await view.call(call, CONTEXT, journal)).is_error
    assert journal.happened == []


@pytest.mark.rule(9)
async def test_a_call_for_which_there_is_no_thread_is_not_recorded() -> None:
    """It is refused like the others."""
    journal = Journal()
    idle = tool(effects=Effects.UNSAFE, name="t")(lambda: None)
    view = view_of(idle, threads=Threads(max_stuck=0), timeout=0.01)
    assert (await view.call(CALL, CONTEXT, journal)).is_error
    assert journal.happened == []


@pytest.mark.rule(9)
@RECORDED
async def test_an_error_is_a_result_and_recorded(effects: Effects) -> None:
    """A body that raised has come to something; it is not tried again."""

    async def fail() -> None:
        raise ValueError("declined")

    journal = Journal(before={"body": fail})
    result = await journal.call(effects)
    assert result == Result("ValueError: declined", is_error=True)
    assert journal.recorded == EarlierCall(effects, result)


@pytest.mark.rule(9)
@RECORDED
async def test_a_body_that_took_too_long_may_have_taken_effect(
    effects: Effects,
    autojump_clock: MockClock,  # noqa: ARG001 - time passes by itself
) -> None:
    """The recorded result says so, so that the model does not simply ask again."""
    journal = Journal(before={"body": trio.sleep_forever})
    result = await journal.call(effects)
    assert result == Result(
        "t took longer than 10 s and was stopped; it may have taken effect", is_error=True
    )
    assert journal.recorded == EarlierCall(effects, result)


@pytest.mark.rule(9)
@pytest.mark.rule(20)
async def test_what_is_recorded_is_bounded_and_clean() -> None:
    """The model is told the same whether the result comes from the tool or from the ledger."""
    ledger = MemoryLedger()

    @tool(effects=Effects.UNSAFE)
    async def t() -> Result:
        return Result("a\0" + "x" * 10 * LIMIT, "\ud800")

    view = view_of(t)
    first, again = [await call_in(view, "t", ledger) for _ in range(2)]
    assert again == first == ledger.calls[KEY].result
    assert len(first.for_llm.encode()) <= LIMIT
    assert first.for_llm.startswith("a\ufffd")
    assert first.for_user == "\ufffd"


@pytest.mark.rule(9)
async def test_the_time_that_recording_takes_is_not_the_tool_s(autojump_clock: MockClock) -> None:
    """A slow database makes no tool look slow."""

    async def slow() -> None:
        await trio.sleep(60)

    journal = Journal(before={"begin": slow, "finish": slow})
    assert not (await journal.call(Effects.UNSAFE)).is_error
    assert autojump_clock.current_time() >= 120


# --- the next time --------------------------------------------------------------------------


@pytest.mark.rule(9)
@RECORDED
async def test_a_recorded_result_is_used(effects: Effects) -> None:
    """The body does not run, and the model is told what it would have been told."""
    journal = Journal()
    first = await journal.call(effects)
    errors = counted(names.TOOL_ERRORS)
    assert await journal.call(effects) == first
    assert journal.happened == ["begin", "body", "finish", "begin"]
    assert counted(names.TOOL_ERRORS) == errors


@pytest.mark.rule(9)
async def test_a_keyed_call_that_was_cut_short_runs_again_with_its_key() -> None:
    """Whoever is called knows by the key that it is the same call."""
    journal = await cut_short(Effects.KEYED)
    assert journal.recorded == EarlierCall(Effects.KEYED)
    result = await journal.call(Effects.KEYED)
    assert journal.keys == [f"{CONTEXT.run_id}:2:1"] * 2
    assert result == Result("paid", "paid, at call 2")
    assert journal.recorded == EarlierCall(Effects.KEYED, result)


@pytest.mark.rule(9)
async def test_an_unsafe_call_that_was_cut_short_does_not_run_again() -> None:
    """The model is told that it may have taken effect, however often the turn is driven."""
    journal = await cut_short(Effects.UNSAFE)
    for _ in range(2):
        with counting("t", "interrupted"):
            result = await journal.call(Effects.UNSAFE)
        assert result.is_error
        assert "may have taken effect" in result.for_llm
        assert "not run again" in result.for_llm
    assert len(journal.keys) == 1
    assert journal.recorded == EarlierCall(Effects.UNSAFE)


@pytest.mark.rule(9)
@pytest.mark.parametrize(
    ("then", "now"), [(Effects.KEYED, Effects.UNSAFE), (Effects.UNSAFE, Effects.KEYED)]
)
async def test_a_call_runs_again_only_if_it_heeds_the_key_both_times(
    then: Effects, now: Effects
) -> None:
    """A tool that was declared otherwise when it was cut short, or is now, is an unsafe one."""
    journal = await cut_short(then)
    assert "may have taken effect" in (await journal.call(now)).for_llm
    assert len(journal.keys) == 1


# --- when recording fails -------------------------------------------------------------------


@pytest.mark.rule(9)
@pytest.mark.parametrize("error", [StateConflict("not ours"), StoreUnavailable("away")])
@pytest.mark.parametrize(("write", "happened"), [("begin", []), ("finish", ["begin", "body"])])
async def test_an_error_of_the_ledger_is_no_result_of_the_tool(
    error: Exception, write: str, happened: list[str]
) -> None:
    """It gets out as it is; a body whose beginning could not be recorded has not run."""

    async def fail() -> None:
        raise error

    journal, errors = Journal(before={write: fail}), counted(names.TOOL_ERRORS)
    with pytest.raises(type(error)) as raised:
        await journal.call(Effects.UNSAFE)
    assert raised.value is error
    assert journal.happened == happened
    assert counted(names.TOOL_ERRORS) == errors


# --- cancelled ------------------------------------------------------------------------------


@pytest.mark.rule(9)
@RECORDED
async def test_a_cancel_in_the_body_leaves_the_call_begun(effects: Effects) -> None:
    """Nobody knows how far it came, so nothing is recorded, also if the body swallows the cancel."""

    async def swallow() -> None:
        with trio.CancelScope() as scope:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                scope.cancel()

    for stop in (trio.sleep_forever, swallow):
        journal = Journal(before={"body": stop})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_blocked, nursery.cancel_scope)
            await journal.call(effects)
        assert journal.happened == ["begin", "body"]
        assert journal.recorded == EarlierCall(effects)


@pytest.mark.rule(9)
async def test_a_run_cancelled_while_the_beginning_is_recorded_starts_no_body() -> None:
    """The write is done, and the body still does not start."""
    gate = trio.Event()

    async def shielded() -> None:
        with trio.CancelScope(shield=True):
            await gate.wait()

    journal = Journal(before={"begin": shielded})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.call, Effects.KEYED)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        gate.set()
    assert journal.happened == ["begin"]


@pytest.mark.rule(9)
async def test_a_cancel_waits_until_the_result_is_recorded() -> None:
    """What is known of a call is not lost because its run is cut short at this moment."""
    gate = trio.Event()
    journal = Journal(before={"finish": gate.wait})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.call, Effects.UNSAFE)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
        gate.set()
    assert journal.recorded == EarlierCall(Effects.UNSAFE, Result("paid", "paid, at call 1"))


@pytest.mark.rule(9)
async def test_a_cancel_does_not_wait_for_ever(autojump_clock: MockClock) -> None:
    """A database that is away holds up a process that is being stopped for some seconds only."""

    async def away() -> None:
        await trio.sleep(1000)

    journal = Journal(before={"finish": away})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.call, Effects.UNSAFE)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert autojump_clock.current_time() <= RECORD_GRACE
    assert journal.recorded == EarlierCall(Effects.UNSAFE)


@pytest.mark.rule(9)
async def test_without_a_cancel_recording_has_all_the_time_there_is(autojump_clock: MockClock) -> None:
    """The lease bounds it, as every write; the grace is only for those who cannot wait."""
    away_until = 10 * RECORD_GRACE

    async def away() -> None:
        await trio.sleep_until(away_until)

    journal = Journal(before={"finish": away})
    await journal.call(Effects.UNSAFE)
    assert autojump_clock.current_time() == away_until
    assert journal.happened[-1] == "finish"
