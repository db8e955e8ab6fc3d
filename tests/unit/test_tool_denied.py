"""A denied call at the tools: what the model is told, what the ledger is asked, what is counted."""

from __future__ import annotations

import attrs
import pytest

from hango.domain import EarlierCall, Effects, Result, ToolContext, ToolUseBlock
from hango.errors import StoreUnavailable
from hango.telemetry import names
from hango.testing import MemoryLedger
from hango.tools import Tool, ToolSet, tool

from support.counters import counted
from support.tools import CONTEXT, LIMIT, counting, registry_of, view_of

CALL = ToolUseBlock("c1", "t")
KEY = (CONTEXT.run_id, CONTEXT.turn, CONTEXT.ordinal)
DENIED = Result("denied: not today", is_error=True)
RECORDED = pytest.mark.parametrize("effects", [Effects.KEYED, Effects.UNSAFE])
HARMLESS = pytest.mark.parametrize("effects", [Effects.READ_ONLY, Effects.IDEMPOTENT])


def never_run(effects: Effects) -> Tool:
    """Return a tool ``t`` that must not run."""

    @tool(effects=effects)
    async def t() -> str:
        pytest.fail("it ran")

    return t


async def deny(view: ToolSet, ledger: MemoryLedger, call: ToolUseBlock = CALL) -> Result:
    """Deny *call*."""
    return await view.deny(call, "not today", CONTEXT, ledger)


@pytest.mark.rule(23)
@pytest.mark.parametrize("effects", list(Effects))
async def test_a_denied_call_does_not_start_and_leaves_no_record(effects: Effects) -> None:
    """Whatever its tool does: it has not happened, so there is nothing to keep."""
    ledger = MemoryLedger()
    with counting("t", "denied"):
        assert await deny(view_of(never_run(effects)), ledger) == DENIED
    assert ledger.calls == {}


@pytest.mark.rule(23)
@pytest.mark.parametrize(
    ("name", "label"), [("t", "t"), ("forbidden", "forbidden"), ("made_up", "_unknown")]
)
async def test_a_denied_call_is_counted_once_under_a_bounded_name(name: str, label: str) -> None:
    """Also where the tool is not this agent's, or no tool at all."""
    other = tool(effects=Effects.UNSAFE, name="forbidden")(lambda: None)
    registry = registry_of(never_run(Effects.UNSAFE), other)
    view = registry.view(["t"], timeout=1, result_limit=LIMIT)
    with counting(label, "denied"):
        assert await deny(view, MemoryLedger(), ToolUseBlock("c1", name)) == DENIED


@pytest.mark.rule(9)
@pytest.mark.rule(23)
@RECORDED
@pytest.mark.parametrize("recorded", [Result("paid", "paid 3"), Result("declined", is_error=True)])
async def test_a_recorded_result_is_told_instead(effects: Effects, recorded: Result) -> None:
    """It was permitted then, and it happened; nothing is an error now that was none."""
    ledger = MemoryLedger({KEY: EarlierCall(effects, recorded)})
    errors = counted(names.TOOL_ERRORS)
    assert await deny(view_of(never_run(effects)), ledger) == recorded
    assert counted(names.TOOL_ERRORS) == errors


@pytest.mark.rule(9)
@pytest.mark.rule(23)
@RECORDED
async def test_a_call_that_had_begun_may_have_taken_effect(effects: Effects) -> None:
    """Keyed or unsafe: it is denied, and the model is told what nobody knows."""
    ledger = MemoryLedger({KEY: EarlierCall(effects)})
    with counting("t", "denied"):
        result = await deny(view_of(never_run(effects)), ledger)
    assert result.is_error
    assert result.for_llm.startswith("denied: not today; ")
    assert "may have taken effect" in result.for_llm
    assert ledger.calls == {KEY: EarlierCall(effects)}


@pytest.mark.rule(9)
@pytest.mark.rule(23)
@HARMLESS
async def test_what_may_run_twice_has_no_past(effects: Effects) -> None:
    """A tool that was declared otherwise when it began is as harmless as it is now."""
    ledger = MemoryLedger({KEY: EarlierCall(Effects.UNSAFE, Result("paid"))})
    assert await deny(view_of(never_run(effects)), ledger) == DENIED


@attrs.define
class Away:
    """A ledger that cannot be reached."""

    async def begin(self, context: ToolContext, tool: str, effects: Effects) -> EarlierCall | None:
        """Fail."""
        raise StoreUnavailable(f"away: begin {tool}, {effects}, {context}")

    async def earlier(self, context: ToolContext) -> EarlierCall | None:
        """Fail."""
        raise StoreUnavailable(f"away: earlier {context}")

    async def finish(self, context: ToolContext, result: Result) -> None:
        """Fail."""
        raise StoreUnavailable(f"away: finish {context}, {result}")


@pytest.mark.rule(3)
@pytest.mark.rule(23)
async def test_without_the_ledger_nothing_is_said_of_a_call_that_may_have_happened() -> None:
    """The error ends the execution as itself; where there is no record, nobody asks."""
    errors = counted(names.TOOL_ERRORS)
    with pytest.raises(StoreUnavailable):
        await view_of(never_run(Effects.KEYED)).deny(CALL, "not today", CONTEXT, Away())
    assert counted(names.TOOL_ERRORS) == errors
    harmless = view_of(never_run(Effects.READ_ONLY))
    assert await harmless.deny(CALL, "not today", CONTEXT, Away()) == DENIED


@pytest.mark.rule(20)
@pytest.mark.rule(23)
async def test_a_reason_fits_the_limit_of_results() -> None:
    """C10: as every other result does."""
    view = registry_of(never_run(Effects.UNSAFE)).view([], timeout=1, result_limit=40)
    result = await view.deny(CALL, "x" * 500, CONTEXT, MemoryLedger())
    assert len(result.for_llm.encode()) <= 40
    assert result.is_error
