"""The demo model: rules, and the same answer every time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.agent.accumulator import Accumulator, ModelAnswer
from hango.agent.ports import Provider
from hango.domain import (
    Block,
    PromptMessage,
    ProviderEvent,
    ProviderRequest,
    StopReason,
    TextBlock,
    TextDelta,
    ToolDefinition,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.providers import DemoProvider
from hango.providers.demo import INTRODUCTION, _zones, find_urls, find_zones

TOOLS = tuple(ToolDefinition(name, "", {"type": "object"}) for name in ("get_time", "http_fetch"))


def test_it_is_a_provider() -> None:
    """It fits the port of the loop by shape."""
    provider: Provider = DemoProvider()
    assert provider.name == "demo"


async def events_of(
    *messages: PromptMessage, tools: tuple[ToolDefinition, ...] = TOOLS
) -> list[ProviderEvent]:
    """Ask it and return all events."""
    async with DemoProvider().stream(ProviderRequest("demo", "", messages, tools, 2)) as events:
        return [event async for event in events]


async def ask(prompt: str, tools: tuple[ToolDefinition, ...] = TOOLS) -> ModelAnswer:
    """Ask it one thing and return the answer."""
    return collect(await events_of(PromptMessage("user", (TextBlock(prompt),)), tools=tools))


def collect(events: list[ProviderEvent]) -> ModelAnswer:
    """Put events together as the loop does."""
    accumulator = Accumulator(turn=2)
    for event in events:
        accumulator.push(event)
    assert accumulator.finished
    return accumulator.answer()


@pytest.mark.parametrize(
    ("prompt", "zones"),
    [
        ("What time is it in Tokyo?", ["Asia/Tokyo"]),
        ("tokyo, BERLIN and New York", ["Asia/Tokyo", "Europe/Berlin", "America/New_York"]),
        ("new_york, New-York; new york", ["America/New_York"]),
        ("America/New_York and Europe/Berlin", ["America/New_York", "Europe/Berlin"]),
        ("America/Argentina/Buenos_Aires", ["America/Argentina/Buenos_Aires"]),
        ("Port au Prince, Port-au-Prince", ["America/Port-au-Prince"]),
        ("São Paulo and Córdoba", ["America/Sao_Paulo", "America/Argentina/Cordoba"]),
        (
            "Beulah and New Salem, not Salem",
            ["America/North_Dakota/Beulah", "America/North_Dakota/New_Salem"],
        ),
        ("Istanbul, Nicosia", ["Europe/Istanbul", "Asia/Nicosia"]),
        ("Tokyoites, Berliner, unparisian", []),
        ("Fetch https://example.com/tokyo for Berlin", ["Europe/Berlin"]),
        ("the act of going north or south", []),
        ("", []),
    ],
)
def test_cities_are_found_by_their_names(prompt: str, zones: list[str]) -> None:
    """Whole words in any case, the longest name, each once, in order of appearance."""
    assert find_zones(prompt) == zones


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_any_cities_of_the_list_are_found(seed: int, count: int) -> None:
    """As many as a prompt names, whichever they are."""
    names = random.Random(seed).sample(sorted(_zones()), count)  # noqa: S311 - a choice, not a secret
    assert find_zones("Time in " + " / ".join(names) + "?") == list(
        dict.fromkeys(_zones()[n] for n in names)
    )


def test_urls_are_found_without_their_sentence() -> None:
    """Each once, in order."""
    prompt = "See https://a.test/x?y=1#z, (http://b.test/) and <https://a.test/x?y=1#z>."
    assert find_urls(prompt) == ["https://a.test/x?y=1#z", "http://b.test/"]


async def test_each_city_is_a_call() -> None:
    """With ids and arguments as a real model would send them."""
    answer = await ask("Tokyo and Berlin?")
    assert answer.content == (
        ToolUseBlock("call_2_0", "get_time", {"timezone": "Asia/Tokyo"}),
        ToolUseBlock("call_2_1", "get_time", {"timezone": "Europe/Berlin"}),
    )
    assert answer.stop_reason is StopReason.TOOL_USE


async def test_each_url_is_a_call() -> None:
    """After the cities, if there are both."""
    answer = await ask("Fetch http://a.test/ and tell me the time in Paris")
    assert [(call.name, dict(call.input)) for call in answer.calls] == [
        ("get_time", {"timezone": "Europe/Paris"}),
        ("http_fetch", {"url": "http://a.test/"}),
    ]


async def test_tools_that_are_not_offered_are_not_called() -> None:
    """Then it says what it is."""
    answer = await ask("Tokyo, http://a.test/", tools=())
    assert answer.content == (TextBlock(INTRODUCTION),)
    assert answer.stop_reason is StopReason.END_TURN


async def test_everything_else_gets_an_introduction() -> None:
    """It is documented as what it is, in its own words too."""
    assert (await ask("Write a poem")).content == (TextBlock(INTRODUCTION),)


def history(*last: Block) -> tuple[PromptMessage, ...]:
    """Write a conversation of two calls that ends with *last*."""
    calls = tuple(
        ToolUseBlock(call_id, "get_time", {"timezone": zone})
        for call_id, zone in (("a", "X"), ("b", "Y"))
    )
    return (
        PromptMessage("user", (TextBlock("Tokyo"),)),
        PromptMessage("assistant", calls),
        PromptMessage("user", last),
    )


RESULTS = (ToolResultBlock("a", "noon\n"), ToolResultBlock("b", "no such zone", is_error=True))


async def test_results_are_retold() -> None:
    """In their order, errors as errors; it asks for nothing again."""
    answer = collect(await events_of(*history(*RESULTS)))
    assert answer.content == (TextBlock("X: noon\nY: failed: no such zone"),)


async def test_a_prompt_after_results_is_a_prompt() -> None:
    """Results that another run left do not hide what is asked now; ids are new."""
    answer = collect(await events_of(*history(*RESULTS, TextBlock("And Rome?"))))
    assert [dict(call.input) for call in answer.calls] == [{"timezone": "Europe/Rome"}]


async def test_a_long_result_is_cut() -> None:
    """It retells, it does not repeat."""
    (block,) = collect(await events_of(*history(ToolResultBlock("a", "x" * 100_000)))).content
    assert isinstance(block, TextBlock)
    assert len(block.text) < 3000


async def test_it_streams_and_counts_and_never_changes() -> None:
    """Small deltas, a usage that grows with what is sent, the same events for the same request."""
    short = await events_of(PromptMessage("user", (TextBlock("x"),)))
    long = await events_of(PromptMessage("user", (TextBlock("x" * 4000),)))
    assert short == await events_of(PromptMessage("user", (TextBlock("x"),)))
    assert sum(isinstance(event, TextDelta) for event in short) > 5
    assert collect(long).billed.input_tokens > collect(short).billed.input_tokens + 900
    assert collect(short).billed.output_tokens == -(-len(INTRODUCTION) // 4)


async def test_a_conversation_of_nothing_is_answered() -> None:
    """It never fails."""
    assert collect(await events_of()).content == (TextBlock(INTRODUCTION),)
