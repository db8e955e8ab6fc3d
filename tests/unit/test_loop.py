"""The loop: what it asks, what it stores and in how many writes, and how it ends."""

from __future__ import annotations

import pytest

from hango.agent import LoopLimits
from hango.domain import (
    ErrorCode,
    Interrupted,
    NewMessage,
    OutcomeStatus,
    RunOutcome,
    Stop,
    StopReason,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    new_id,
)
from hango.testing import Answer

from support.loop_bench import Bench, asks, says

CALL = ToolUseBlock("a", "get_time")
CAP_TEXT = "Stopped before the work was done: this run reached its limit of {} iterations."


@pytest.mark.rule(7)
async def test_an_answer_in_words_ends_the_run_without_a_write_of_its_own() -> None:
    """Input and final message go with the state the run ends in."""
    bench = Bench([says("hello")])
    outcome = await bench.run()
    assert bench.transcript.writes == []
    assert bench.story() == ["0 user text", "1 assistant text"]
    assert attributes(outcome) == (OutcomeStatus.DONE, 1, Usage(10, 1), StopReason.END_TURN, "")
    assert outcome.error is None


@pytest.mark.rule(7)
async def test_a_turn_with_tools_makes_two_writes() -> None:
    """The answer before its tools, with the input in front of it; then the results and the boundary."""
    bench = Bench([asks(CALL), asks(CALL), says("hello")])
    outcome = await bench.run()
    assert bench.transcript.writes == ["append", "end_turn"] * 2
    assert bench.story() == [
        "0 user text",
        "1 assistant tool_use",
        "1 user tool_result",
        "2 assistant tool_use",
        "2 user tool_result",
        "3 assistant text",
    ]
    assert bench.transcript.usage == Usage(20, 4)
    assert attributes(outcome) == (OutcomeStatus.DONE, 3, Usage(30, 5), StopReason.END_TURN, "")


def attributes(outcome: RunOutcome) -> tuple[OutcomeStatus, int, Usage, StopReason | None, str]:
    """Return what an outcome says beside its messages and its error."""
    return (
        outcome.status,
        outcome.iterations,
        outcome.usage,
        outcome.stop_reason,
        outcome.stopped_by,
    )


async def test_the_request_is_the_conversation_and_the_agents_own_words() -> None:
    """The system prompt is sent as it is, and the history grows by what was stored."""
    bench = Bench([asks(CALL), says("hello")], limits=LoopLimits(max_tokens=99))
    await bench.run()
    first, second = bench.provider.requests
    assert (first.system, first.model, first.max_tokens, first.turn) == ("Be brief.", "m", 99, 1)
    assert [tool.name for tool in first.tools] == ["get_time"]
    assert [m.role for m in second.messages] == ["user", "assistant", "user"]
    assert second.messages[:1] == first.messages
    assert second.messages[2].content == (ToolResultBlock("a", "noon"),)
    assert second.turn == 2


@pytest.mark.rule(20)
async def test_the_input_passes_the_codec() -> None:
    """C01: what a client sent is stored and sent without NUL."""
    bench = Bench([says("hello")])
    await bench.run(blocks=[TextBlock("a\0b")])
    assert bench.transcript.messages[0].content == (TextBlock("a\ufffdb"),)
    assert bench.provider.requests[0].messages[0].content == (TextBlock("a\ufffdb"),)


@pytest.mark.rule(15)
@pytest.mark.parametrize("label", [StopReason.END_TURN, StopReason.STOP_SEQUENCE, StopReason.TOOL_USE])
async def test_complete_calls_go_on_whatever_the_label(label: StopReason) -> None:
    """B06: the content decides, and the stored reason says so."""
    bench = Bench([asks(CALL, stop=label), says("hello")])
    assert (await bench.run()).status is OutcomeStatus.DONE
    assert len(bench.tools.calls) == 1
    assert bench.transcript.messages[1].stop_reason is StopReason.TOOL_USE


@pytest.mark.rule(15)
@pytest.mark.parametrize("label", [StopReason.MAX_TOKENS, StopReason.REFUSAL])
async def test_no_tool_runs_after_length_or_refusal(label: StopReason) -> None:
    """B12: the run is done with that reason, and the next one finds the calls answered."""
    bench = Bench([asks(CALL, stop=label)])
    outcome = await bench.run()
    assert attributes(outcome) == (OutcomeStatus.DONE, 1, Usage(10, 2), label, "")
    assert bench.tools.calls == []
    assert bench.story() == ["0 user text", "1 assistant tool_use"]

    after = Bench([says("hello")])
    after.transcript.store(
        NewMessage(m.role, m.content, m.run_id, m.turn) for m in bench.transcript.messages
    )
    await after.run()
    assert after.transcript.writes == ["append"]
    assert after.story()[2:] == [
        "1 user tool_result synthetic",
        "0 user text",
        "1 assistant text",
    ]


@pytest.mark.rule(15)
async def test_a_promise_of_calls_without_calls_ends_the_run() -> None:
    """B07: tool_use with nothing to run is an end, not a loop."""
    bench = Bench([Answer((Stop(StopReason.TOOL_USE),))])
    outcome = await bench.run()
    assert attributes(outcome) == (OutcomeStatus.DONE, 1, Usage(), StopReason.END_TURN, "")


async def test_an_answer_with_nothing_is_stored_as_it_is_and_not_sent() -> None:
    """B08: a message without blocks keeps the turn's place, and later requests are valid."""
    bench = Bench([says(" ")])
    await bench.run()
    assert bench.transcript.messages[1].content == ()
    after = Bench([says("hello")])
    after.transcript.store(
        NewMessage(m.role, m.content, m.run_id, m.turn) for m in bench.transcript.messages
    )
    await after.run()
    (request,) = after.provider.requests
    assert [m.role for m in request.messages] == ["user"]


@pytest.mark.rule(15)
@pytest.mark.parametrize("stop", [StopReason.MAX_TOKENS, StopReason.STOP_SEQUENCE, StopReason.REFUSAL])
async def test_the_other_ends_are_done_with_their_reason(stop: StopReason) -> None:
    """B12: length, a stop sequence and a refusal end the run as done."""
    bench = Bench([says("hello", stop)])
    outcome = await bench.run()
    assert (outcome.status, outcome.stop_reason) == (OutcomeStatus.DONE, stop)
    assert bench.transcript.messages[-1].stop_reason is stop


@pytest.mark.rule(17)
@pytest.mark.parametrize("cap", [1, 2, 20])
async def test_at_the_cap_the_last_tools_run_and_a_message_explains_it(cap: int) -> None:
    """B13: exactly N provider calls, no dangling call, and nothing that claims success."""
    bench = Bench([asks(CALL)] * cap, limits=LoopLimits(max_iterations=cap))
    outcome = await bench.run()
    assert len(bench.provider.requests) == len(bench.tools.calls) == cap
    assert bench.transcript.writes == ["append", "end_turn"] * cap
    assert bench.story()[-2:] == [f"{cap} user tool_result", f"{cap + 1} assistant text synthetic"]
    assert bench.transcript.messages[-1].content == (TextBlock(CAP_TEXT.format(cap)),)
    assert attributes(outcome) == (
        OutcomeStatus.INCOMPLETE,
        cap,
        Usage(10 * cap, 2 * cap),
        None,
        "iteration_cap",
    )
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.ITERATION_CAP


@pytest.mark.rule(11)
async def test_a_boundary_that_says_stop_ends_the_execution_with_nothing_more_to_store() -> None:
    """Cancelled or handed over at a boundary, all is stored already."""
    bench = Bench([asks(CALL)])
    bench.transcript.handing_over = True
    assert await bench.execute() == Interrupted()
    assert bench.transcript.writes == ["append", "end_turn"]


@pytest.mark.rule(14)
async def test_a_dangling_call_of_an_earlier_run_is_answered_before_the_provider_is_asked() -> None:
    """B01, B03: one write more, with the input behind the results; then the run goes on as ever."""
    bench = Bench([asks(CALL), says("hello")])
    earlier = new_id()
    bench.transcript.store(
        [
            NewMessage("user", (TextBlock("old"),), earlier, 0),
            NewMessage("assistant", (ToolUseBlock("x", "get_time"),), earlier, 1),
        ]
    )
    await bench.run()
    assert bench.transcript.writes == ["append", "append", "end_turn"]
    assert bench.story()[2:] == [
        "1 user tool_result synthetic",
        "0 user text",
        "1 assistant tool_use",
        "1 user tool_result",
        "2 assistant text",
    ]
    assert bench.transcript.messages[2].run_id == earlier
    assert bench.transcript.messages[2].content == (
        ToolResultBlock("x", "tool call interrupted", is_error=True),
    )


@pytest.mark.rule(14)
async def test_a_run_after_a_cancelled_one_is_accepted() -> None:
    """B14: user turns that follow each other are joined in the request, and stay as they are."""
    bench = Bench([says("hello")])
    earlier = new_id()
    results = (ToolResultBlock("x", "noon"),)
    bench.transcript.store(
        [
            NewMessage("user", (TextBlock("old"),), earlier, 0),
            NewMessage("assistant", (ToolUseBlock("x", "get_time"),), earlier, 1),
            NewMessage("user", results, earlier, 1),
        ]
    )
    await bench.run()
    (request,) = bench.provider.requests
    assert request.messages[-1].content == (*results, TextBlock("hi"))
    assert bench.transcript.messages[2].content == results


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(asks(*[ToolUseBlock(f"c{n}", "get_time") for n in range(5000)]), id="normal"),
        pytest.param(
            asks(*[ToolUseBlock(f"c{n}", "get_time") for n in range(5000)], stop=StopReason.MAX_TOKENS),
            id="max_tokens",
        ),
    ],
)
@pytest.mark.rule(19)
async def test_an_answer_of_thousands_of_calls_fails_the_run(script: Answer) -> None:
    """B15: none of them runs, what is stored is bounded, and the error says why."""
    bench = Bench([script])
    outcome = await bench.run()
    assert bench.tools.calls == []
    assert len(bench.transcript.messages[-1].content) == 64
    assert bench.story() == ["0 user text", f"1 assistant {','.join(['tool_use'] * 64)} partial"]
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.PROVIDER_ERROR
    assert outcome.error.message == "too_many_tool_calls: 5000 in one turn; at most 64 are allowed"
    assert outcome.stopped_by == "provider_error"
