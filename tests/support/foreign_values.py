"""Hostile histories, answers and values, for what reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from hango.agent.accumulator import Accumulator
from hango.agent.history import dangling_call_results
from hango.agent.prompt import repair_history
from hango.agent.provider_border import check_event
from hango.call_ids import CallIds
from hango.codec import blocks_from_json, clean_json, dump_json
from hango.domain import (
    Block,
    BlockStart,
    InputDelta,
    Message,
    PromptMessage,
    ProviderEvent,
    SignatureDelta,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.providers.body import EventReader
from hango.providers.openai.answer import ChatAnswer
from hango.providers.openai.reasoning import Reasoning
from hango.text import TextJoiner
from hango.tools import builtin_tools, tool
from hango.tools.fetch.targets import AllowedHosts

from support.growth import Parse, refusing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = UUID(int=7)
LONG = "ab" * 500  # a piece, so that copying all before it with each shows


# --- history, accumulator, ids --------------------------------------------------------------


def call(number: object) -> ToolUseBlock:
    """Return a call with an id made of *number*."""
    return ToolUseBlock(f"call_{number}", "get_time")


def repaired(make: Callable[[int], Iterable[Block]], *, results: bool = False) -> Parse:
    """Return what repairs a history of one call a message, or of all in one."""

    def prepare(size: int) -> Callable[[], object]:
        blocks = list(make(size // 8))
        messages = [PromptMessage("assistant", tuple(blocks))]
        if results:
            found = [ToolResultBlock(b.id, "") for b in blocks if isinstance(b, ToolUseBlock)]
            messages.append(PromptMessage("user", tuple(found)))
        single = [PromptMessage("assistant", (block,)) for block in blocks]
        spread = [m for one in single for m in (one, PromptMessage("user", (TextBlock("go on"),)))]
        return lambda: (repair_history(messages, "mine"), repair_history(spread, "mine"))

    return prepare


def taken_ids(size: int) -> Sequence[Block]:
    """Return S-M1's input: calls with ids that a renaming may try, then as many with one id."""
    numbers = range(size // 2, size)
    return [call(n) for n in numbers] + [call("a") for _ in numbers]


def copied_ids(size: int) -> Sequence[Block]:
    """Return the same against suffixes."""
    numbers = range(2, size // 2)
    return [call(f"a_{n}") for n in numbers] + [call("a") for _ in numbers]


def stored(make: Callable[[int], Iterable[Block]]) -> Parse:
    """Return what looks for calls without results at the end of a stored history."""

    def prepare(size: int) -> Callable[[], object]:
        message = Message(
            id=RUN,
            session_id=RUN,
            seq=1,
            role="assistant",
            content=tuple(make(size // 8)),
            run_id=None,
            turn=None,
            stop_reason=None,
            usage=None,
            partial=False,
            synthetic=False,
            created_at=NOON,
        )
        return partial(dangling_call_results, [message])

    return prepare


def accumulated(make: Callable[[int], Iterable[ProviderEvent]]) -> Parse:
    """Return what collects the events of an answer."""

    def collect(events: list[ProviderEvent]) -> object:
        accumulator = Accumulator(1, max_calls=10**6)
        for event in events:
            check_event(event)
            accumulator.push(event)
        accumulator.push(Stop(StopReason.END_TURN))
        return accumulator.answer(), accumulator.partial(), accumulator.empty

    return lambda size: partial(collect, list(make(size // 16)))


def ids_given(wanted: Callable[[int], Iterable[str]]) -> Parse:
    """Return what gives out ids."""

    def give(ids: list[str]) -> object:
        given = CallIds(ids)
        return [given.give(one) for one in ids]

    return lambda size: partial(give, list(wanted(size // 8)))


AGENT: dict[str, Parse] = {
    "history: ids that are taken": repaired(taken_ids),
    "history: copies that are taken": repaired(copied_ids, results=True),
    "history: no ids": repaired(lambda n: [ToolUseBlock("", "") for _ in range(n)], results=True),
    "history: ids that cannot be sent": repaired(lambda n: [call("é" * 70) for _ in range(n)]),
    "history: results without calls": repaired(lambda n: [ToolResultBlock("a", "") for _ in range(n)]),
    "history: texts": repaired(lambda n: [TextBlock("hi") for _ in range(n)]),
    "history: dangling calls": stored(lambda n: [call(i) for i in range(n)]),
    "ids: one": ids_given(lambda n: ["a"] * n),
    "ids: copies": ids_given(lambda n: ["a", *(f"a_{i}" for i in range(n))] * 2),
    "ids: none": ids_given(lambda n: [""] * n),
    "ids: longer than they may be": ids_given(lambda n: ["x" * 80] * n),
    "accumulator: text": accumulated(lambda n: [TextDelta(0, "ab")] * n),
    "accumulator: halves": accumulated(lambda n: [TextDelta(0, "\ud83d"), TextDelta(0, "\ude00")] * n),
    "accumulator: long text": accumulated(lambda n: [TextDelta(0, LONG)] * n),
    "accumulator: arguments": accumulated(
        lambda n: [BlockStart(0, call(1)), *[InputDelta(0, '{"a":')] * n]
    ),
    "accumulator: long arguments": accumulated(
        lambda n: [BlockStart(0, call(1)), *[InputDelta(0, LONG)] * n]
    ),
    "accumulator: blocks": accumulated(lambda n: [TextDelta(i, "ab") for i in range(n)]),
    "accumulator: calls of one id": accumulated(lambda n: [BlockStart(i, call(1)) for i in range(n)]),
    "accumulator: calls without": accumulated(
        lambda n: [BlockStart(i, ToolUseBlock("", "")) for i in range(n)]
    ),
    "accumulator: signatures": accumulated(lambda n: [SignatureDelta(0, "abcd")] * n),
}

# --- text and JSON --------------------------------------------------------------------------


def joined(size: int) -> Callable[[], object]:
    """Join pieces that end in halves."""

    def join() -> object:
        joiner = TextJoiner()
        return [joiner.push(piece) for piece in ["a\ud83d", "\ude00b"] * (size // 8)], joiner.finish()

    return join


def of_json(make: Callable[[int], object]) -> Parse:
    """Return what cleans and dumps a value."""
    return lambda size: partial(_clean, make(size // 8))


def _clean(value: object) -> object:
    return clean_json(value), dump_json(value)


@tool(effects="read_only")
async def bound(text: str, numbers: list[int] | None = None) -> str:
    """Bind arguments."""
    return text + str(numbers)


BUILTIN = {made.name: made for made in builtin_tools(http_fetch_allowed_hosts=["example.com"])}


def todos(count: int) -> list[dict[str, object]]:
    """Return a todo list."""
    return [{"id": str(n), "text": "draft", "completed": False} for n in range(count)]


def bind(name: str, make: Callable[[int], dict[str, object]]) -> Parse:
    """Return what checks arguments of a tool."""
    found = {**BUILTIN, "bound": bound}[name]
    return lambda size: (
        partial(refusing(lambda _: found.bind(arguments)), "")
        if (arguments := make(size // 64))
        else list
    )


# --- answers of servers ---------------------------------------------------------------------


def answered(make: Callable[[int], Iterable[dict[str, object]]]) -> Parse:
    """Return what reads the chunks of a chat completion, each one a delta."""

    def read(chunks: list[dict[str, object]]) -> object:
        answer = ChatAnswer("mine", CallIds(), ("get_time",))
        events = [event for chunk in chunks for event in answer.push(chunk)]
        return events, refusing(lambda _: list(answer.finish()))("")

    return lambda size: partial(
        read, [{"choices": [{"index": 0, "delta": delta}]} for delta in make(size // 32)]
    )


def fragment(**fields: object) -> dict[str, object]:
    """Return a delta with a fragment of a call."""
    named = {key: value for key, value in fields.items() if key in ("name", "arguments")}
    rest = {key: value for key, value in fields.items() if key not in named}
    return {"tool_calls": [{**rest, "function": named}]}


def reasoned(item: dict[str, object]) -> Parse:
    """Return what reads pieces of reasoning."""

    def read(count: int) -> object:
        reasoning = Reasoning()
        return [reasoning.push(item) for _ in range(count)], reasoning.to_send_back()

    return lambda size: partial(read, size // 16)


def read_pieces(piece: bytes) -> Parse:
    """Return what reads a body in pieces."""

    def read(count: int) -> object:
        reader = EventReader("mine")
        return refusing(lambda _: [*(reader.feed(piece) for _ in range(count)), reader.close()])("")

    return lambda size: partial(read, size // 16)


SERVERS: dict[str, Parse] = {
    "answer: text": answered(lambda n: [{"content": "ab"}] * n),
    "answer: long text": answered(lambda n: [{"content": LONG}] * n),
    "answer: halves": answered(lambda n: [{"content": "\ud83d"}, {"content": "\ude00"}] * n),
    "answer: arguments": answered(
        lambda n: [
            fragment(index=0, id="a", name="get_time"),
            *[fragment(index=0, arguments="[1]")] * n,
        ]
    ),
    "answer: long arguments": answered(
        lambda n: [fragment(index=0, id="a", name="get_time"), *[fragment(index=0, arguments=LONG)] * n]
    ),
    "answer: arguments before a name": answered(lambda n: [fragment(index=0, arguments=LONG)] * n),
    "answer: arguments that nearly end, and names": answered(
        lambda n: [
            fragment(index=0, name="get_time", arguments='{"a":[{}'),
            *[fragment(index=0, name="get_time", arguments=",{}" * 300)] * n,
        ]
    ),
    "answer: arguments that end again, and names": answered(
        lambda n: [fragment(index=0, name="get_time", arguments=f'{{"a":"{LONG}"}}')] * n
    ),
    "answer: long names": answered(lambda n: [fragment(index=0, name=LONG)] * n),
    "answer: arguments that end, and names": answered(
        lambda n: [fragment(index=0, name="get_time", arguments='{"a":"}')] * n
    ),
    "answer: names in pieces": answered(lambda n: [fragment(index=0, name="get")] * n),
    "answer: calls": answered(lambda n: [fragment(index=i, id=str(i), name="x") for i in range(n)]),
    "answer: calls without ids": answered(lambda n: [fragment(name="x", arguments="{}")] * n),
    "answer: calls of one id": answered(
        lambda n: [fragment(index=i, id="a", name="x") for i in range(n)]
    ),
    "answer: calls in one delta": answered(
        lambda n: [{"tool_calls": [{"index": i, "function": {"name": "x"}} for i in range(n)]}]
    ),
    "reasoning": reasoned({"reasoning": "ab"}),
    "reasoning details": reasoned(
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "abcd"}]}
    ),
    "reasoning, long": reasoned({"reasoning_content": LONG}),
    "reasoning details, long": reasoned(
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": LONG}]}
    ),
    "reasoning details in one": lambda size: (
        lambda: Reasoning().push({"reasoning_details": [{"text": "ab"}] * (size // 16)})
    ),
    "body: pieces of one event": read_pieces(b"data: abcd "),
    "body: long pieces of one event": read_pieces(b"data: " + LONG.encode()),
    "body: long pieces of a document": read_pieces(b"{" + LONG.encode()),
    "body: events": read_pieces(b"data: a\n\n"),
    "body: bytes": read_pieces(b"d"),
}
VALUES: dict[str, Parse] = {
    "text in pieces": joined,
    "JSON: numbers": of_json(lambda n: list(range(n))),
    "JSON: keys": of_json(lambda n: {f"k{i}": None for i in range(n)}),
    "JSON: keys that clean to one": of_json(lambda n: [{"\0": 1, "\ud800": 2}] * n),
    "JSON: texts": of_json(lambda n: ["\ud800"] * n),
    "JSON: lists": of_json(lambda n: [[]] * n),
    "blocks": lambda size: partial(blocks_from_json, [{"type": "text", "text": "a"}] * (size // 16)),
    "blocks: calls": lambda size: partial(
        blocks_from_json, [{"type": "tool_use", "id": "a", "name": "b", "input": {}}] * (size // 16)
    ),
    "todowrite": bind("todowrite", lambda n: {"todos": todos(n)}),
    "todowrite: nonsense": bind("todowrite", lambda n: {"todos": [{}] * n}),
    "schema: numbers": bind("bound", lambda n: {"text": "", "numbers": list(range(n))}),
    "schema: wrong numbers": bind("bound", lambda n: {"text": "", "numbers": ["a"] * n}),
    "schema: keys": bind("bound", lambda n: {f"k{i}": 1 for i in range(n)}),
    "allowed hosts": lambda size: partial(
        AllowedHosts.parse, [f"a{i}.example.com" for i in range(size // 32)]
    ),
}
