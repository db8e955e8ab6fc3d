"""The scripted provider that users of hango test with."""

from __future__ import annotations

from typing import cast

import pytest
import trio
import trio.testing

from hango.agent.accumulator import Accumulator
from hango.agent.ports import Provider
from hango.domain import (
    Block,
    BlockStart,
    OpaqueBlock,
    PromptMessage,
    ProviderRequest,
    RedactedThinkingBlock,
    Stop,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolDefinition,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from hango.errors import ProviderError
from hango.testing import (
    Answer,
    FakeProvider,
    answer,
    broken,
    call,
    check_request,
    failing,
    hanging,
    text,
    thinking,
    waiting,
)


def user(*blocks: Block) -> PromptMessage:
    """Write a user's message."""
    return PromptMessage("user", blocks)


def model(*blocks: Block) -> PromptMessage:
    """Write a model's message."""
    return PromptMessage("assistant", blocks)


HI = user(TextBlock("hi"))


def request(*messages: PromptMessage, tools: tuple[ToolDefinition, ...] = ()) -> ProviderRequest:
    """Write a request of turn 4."""
    return ProviderRequest("m", "", messages or (HI,), tools, 4)


async def ask(fake: FakeProvider, asked: ProviderRequest | None = None) -> Accumulator:
    """Ask once and collect what comes."""
    accumulator = Accumulator(turn=4)
    async with fake.stream(asked or request()) as events:
        async for event in events:
            accumulator.push(event)
    return accumulator


def test_it_fits_its_port() -> None:
    """The type checker proves it."""
    provider: Provider = FakeProvider([])
    assert provider.name == "fake"


async def test_answers_come_in_the_order_of_the_script() -> None:
    """And every request is kept."""
    fake = FakeProvider([call("f", {"x": 1}, id="a"), answer(thinking("hm", "sig"), text("done"))])
    asked = request(HI), request(HI, model(ToolUseBlock("a", "f")), user(ToolResultBlock("a", "y")))
    first, second = [(await ask(fake, one)).answer() for one in asked]
    assert (first.content, first.stop_reason) == (
        (ToolUseBlock("a", "f", {"x": 1}),),
        StopReason.TOOL_USE,
    )
    assert second.content == (ThinkingBlock("hm", "sig"), TextBlock("done"))
    assert (second.stop_reason, second.usage) == (StopReason.END_TURN, Usage(10, 5))
    assert (fake.requests, fake.calls, fake.closed) == (list(asked), 2, 2)


async def test_stop_and_usage_can_be_chosen() -> None:
    """Labels may lie, as those of real models do."""
    fake = FakeProvider([answer(call("f"), stop=StopReason.END_TURN, usage=Usage(1, 2))])
    collected = (await ask(fake)).answer()
    assert (collected.stop_reason, collected.usage) == (StopReason.END_TURN, Usage(1, 2))


async def test_a_call_may_leave_its_id_open() -> None:
    """It gets one of the turn, which no other call of the conversation has."""
    before = (HI, model(ToolUseBlock("call_4_0", "f")), user(ToolResultBlock("call_4_0", "x")))
    for messages, ids in (((HI,), ["call_4_0", "call_4_1"]), (before, ["call_4_0_2", "call_4_1"])):
        collected = (
            await ask(FakeProvider([answer(call("f"), call("f"))]), request(*messages))
        ).answer()
        assert [one.id for one in collected.calls] == ids


async def test_arguments_may_be_broken() -> None:
    """A text is sent as it is."""
    (block,) = (await ask(FakeProvider([call("f", '{"x": ', id="a")]))).answer().content
    assert block == ToolUseBlock("a", "f", raw_input='{"x": ')


async def test_a_script_may_be_a_function() -> None:
    """Of the request."""
    fake = FakeProvider(lambda asked: text(f"turn {asked.turn}"))
    assert (await ask(fake)).answer().content == (TextBlock("turn 4"),)


async def test_errors_come_before_content_or_after() -> None:
    """On entry, or between events."""
    error = ProviderError("no", retryable=True)
    fake = FakeProvider([failing(error), failing(error, text("par"))])
    with pytest.raises(ProviderError):
        async with fake.stream(request()):
            raise AssertionError("it was entered")
    accumulator = Accumulator(turn=4)
    with pytest.raises(ProviderError):
        await collect(fake, accumulator)
    assert accumulator.partial().content == (TextBlock("par"),)


async def collect(fake: FakeProvider, accumulator: Accumulator) -> None:
    """Ask once and push what comes."""
    async with fake.stream(request()) as events:
        async for event in events:
            accumulator.push(event)


async def test_a_stream_may_break_off() -> None:
    """Without a stop; the last block whole or not."""
    for complete in (False, True):
        accumulator = await ask(FakeProvider([broken(call("f", id="a"), complete=complete)]))
        assert not accumulator.finished
        (block,) = accumulator.partial().content
        assert isinstance(block, ToolUseBlock)
        assert (block.raw_input is None) is complete


async def test_an_answer_may_wait() -> None:
    """For an event of the test, before it begins."""
    gate, done = trio.Event(), trio.Event()
    fake = FakeProvider([waiting(gate, text("late"))])

    async def run() -> None:
        assert (await ask(fake)).answer().content == (TextBlock("late"),)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await fake.wait_for_calls(1)
        await trio.testing.wait_all_tasks_blocked()
        assert not done.is_set()
        gate.set()
    assert done.is_set()


async def test_an_answer_may_hang() -> None:
    """After some content, until it is cancelled; then it is closed."""
    fake, accumulator = FakeProvider([hanging(text("so"))]), Accumulator(turn=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, fake, accumulator)
        await trio.testing.wait_all_tasks_blocked()
        assert (fake.calls, fake.closed) == (1, 0)
        nursery.cancel_scope.cancel()
    assert fake.closed == 1
    assert accumulator.partial().content == (TextBlock("so"),)


async def test_any_steps_can_be_written() -> None:
    """What the words cannot say."""
    fake = FakeProvider([Answer((BlockStart(0, TextBlock("")), Stop(StopReason.REFUSAL)))])
    assert (await ask(fake)).answer().stop_reason is StopReason.REFUSAL


@pytest.mark.parametrize("slip", ["hello", ["hello"], [text("hello")], ValueError("no"), None])
async def test_what_is_no_answer_complains(slip: object) -> None:
    """Taken for an empty answer, it would be a run that is done, whatever the test meant."""
    fake = FakeProvider([cast("Answer", slip)])
    with pytest.raises(AssertionError, match="neither an answer nor a block"):
        await ask(fake)
    assert len(fake.complaints) == 1


async def test_a_script_that_runs_out_complains() -> None:
    """Loudly, and where a run that hides exceptions cannot hide it."""
    fake = FakeProvider([text("only one")])
    await ask(fake)
    with pytest.raises(AssertionError, match="call 2 of a script of 1 answers"):
        await ask(fake)
    assert len(fake.complaints) == 1


async def test_a_request_no_api_takes_is_refused() -> None:
    """Unless the test asks for that."""
    bad = request(HI, model(TextBlock("x")))
    fake = FakeProvider([text("x")])
    with pytest.raises(AssertionError, match="would be refused"):
        await ask(fake, bad)
    assert (fake.requests, len(fake.complaints)) == ([bad], 1)
    assert (await ask(FakeProvider([text("x")], strict=False), bad)).finished


# --- the check of requests -------------------------------------------------------------------

ASKED = model(ToolUseBlock("a", "f"), ToolUseBlock("b", "f"))
DONE = user(ToolResultBlock("a", ""), ToolResultBlock("b", "no", is_error=True))


@pytest.mark.parametrize(
    "messages",
    [
        (HI,),
        (HI, ASKED, DONE),
        (HI, ASKED, user(*DONE.content, TextBlock("and?"))),
        (HI, model(ThinkingBlock("hm", "s"), TextBlock("x"), *ASKED.content), DONE),
        (HI, model(TextBlock("x"), OpaqueBlock("p", {})), HI, ASKED, DONE),
    ],
)
@pytest.mark.rule(14)
def test_a_valid_request_passes(messages: tuple[PromptMessage, ...]) -> None:
    """Prompts, calls with their results, what the user adds to them."""
    check_request(request(*messages))


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ((model(TextBlock("x")), HI), "not from user to user"),
        ((HI, model(TextBlock("x"))), "not from user to user"),
        ((HI, HI), "roles do not alternate"),
        ((HI, model(TextBlock("x")), model(TextBlock("x")), HI), "roles do not alternate"),
        ((HI, model(), HI), "holds nothing"),
        ((user(TextBlock("")),), "text without text"),
        ((user(TextBlock(" \n")),), "text without text"),
        ((user(TextBlock("a\0")),), "characters no API takes"),
        ((user(TextBlock("a\ud800")),), "characters no API takes"),
        ((HI, ASKED, HI), "asked for"),
        ((HI, ASKED, user(ToolResultBlock("a", "x"))), "asked for"),
        ((HI, ASKED, user(*reversed(DONE.content))), "asked for"),
        ((HI, ASKED, user(*DONE.content, ToolResultBlock("a", "x"))), "asked for"),
        ((HI, model(TextBlock("x")), user(ToolResultBlock("zzz", "x"))), "asked for"),
        ((user(ToolResultBlock("a", "x")),), "asked for"),
        ((HI, ASKED, user(TextBlock("x"), *DONE.content)), "results after other content"),
        ((HI, ASKED, DONE, ASKED, DONE), "calls of the same id"),
        ((HI, model(ToolUseBlock("", "f")), user(ToolResultBlock("", "x"))), "no id of a call"),
        ((HI, model(ToolUseBlock("a", "f g")), user(ToolResultBlock("a", "x"))), "no API takes back"),
        (
            (HI, ASKED, user(ToolResultBlock("a", "x"), ToolResultBlock("b", " ", is_error=True))),
            "says nothing",
        ),
        (
            (HI, ASKED, user(ToolResultBlock("a", "x"), ToolResultBlock("b", "\0"))),
            "characters no API takes",
        ),
        ((user(ToolUseBlock("a", "f")),), "what only a model makes"),
        ((user(TextBlock("x"), RedactedThinkingBlock("x")),), "what only a model makes"),
        ((HI, model(ToolResultBlock("a", "x")), HI), "a result that is not the user's"),
    ],
)
@pytest.mark.rule(14)
def test_an_invalid_request_is_named(messages: tuple[PromptMessage, ...], problem: str) -> None:
    """B02, B04, B08, B09, B14: each thing a real API refuses."""
    with pytest.raises(AssertionError, match=problem):
        check_request(request(*messages))


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ((ToolDefinition("f", "", {"type": "object"}),) * 2, "tools of the same name"),
        ((ToolDefinition("f g", "", {"type": "object"}),), "no name of a tool"),
        ((ToolDefinition("f", "", {"type": "string"}),), "not an object"),
    ],
)
def test_invalid_tools_are_named(tools: tuple[ToolDefinition, ...], problem: str) -> None:
    """An API refuses them before it reads a word."""
    with pytest.raises(AssertionError, match=problem):
        check_request(request(HI, tools=tools))
