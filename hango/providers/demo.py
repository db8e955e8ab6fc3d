"""The demo model: fixed rules instead of a model, to try hango without a key or a network.

A prompt that names cities of the IANA time zone list makes it call ``get_time`` for each, one with URLs
``http_fetch`` for each, if the agent has these tools.  It repeats the results as text, and answers
everything else with an introduction.  The same request gives the same answer on every machine.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import cache

import attrs
import trio

from hango.call_ids import CallIds
from hango.codec import cut_text, dump_json
from hango.domain import (
    BlockStart,
    BlockStop,
    InputDelta,
    ProviderEvent,
    ProviderRequest,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UsageUpdate,
    joined_text,
)
from hango.time_zones import current_zone_names, zone_names

INTRODUCTION = (
    "I am the demo model of hango: rules, no intelligence, and nothing leaves this machine. "
    "Name cities and I tell their time, give me a URL and I fetch it, if my agent has the tools."
)
MAX_REPEATED = 2000  # bytes of one result
_PIECE = 12  # characters of a delta: small, so that streaming shows
_TOKEN = 4  # characters of a token: the usual rule of thumb for English

_AREAS = (
    *("Africa/", "America/", "Antarctica/", "Arctic/", "Asia/"),
    *("Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/"),
)
# States and directions that are in the list beside the cities, and are common English words
_NO_CITIES = frozenset(("act", "lhi", "nsw", "north", "south", "west"))
_URL = re.compile(r"https?://[^\s<>\"'`]+", re.IGNORECASE)


@attrs.frozen
class DemoProvider:
    """The demo model; see the module."""

    name: str = "demo"

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Ask for one answer; see `hango.agent.ports.Provider`.  Never fails."""
        async with aclosing(_play(request)) as events:
            yield events


async def _play(request: ProviderRequest) -> AsyncGenerator[ProviderEvent, None]:
    for event in _answer(request):
        await trio.lowlevel.checkpoint()
        yield event


def _answer(request: ProviderRequest) -> Iterator[ProviderEvent]:
    calls = _calls(request)
    said = "".join(dump_json(call.input) for call in calls)
    if calls:
        for index, call in enumerate(calls):
            yield from _call_events(index, call)
    else:
        said = _repeat_results(request) or INTRODUCTION
        yield from _text_events(said)
    yield UsageUpdate(Usage(input_tokens=_tokens(_sent(request)), output_tokens=_tokens(said)))
    yield Stop(StopReason.TOOL_USE if calls else StopReason.END_TURN)


def _calls(request: ProviderRequest) -> list[ToolUseBlock]:
    """Return the calls for the last prompt, times first, then pages; may be empty."""
    prompt = _prompt(request)
    offered = {tool.name for tool in request.tools}
    zones = find_zones(prompt) if "get_time" in offered else []
    urls = find_urls(prompt) if "http_fetch" in offered else []
    ids = CallIds.after(request)
    times = [ToolUseBlock(ids.give(), "get_time", {"timezone": zone}) for zone in zones]
    return times + [ToolUseBlock(ids.give(), "http_fetch", {"url": url}) for url in urls]


def _prompt(request: ProviderRequest) -> str:
    """Return the text of the last message, without tool results before it."""
    blocks = request.messages[-1].content if request.messages else ()
    return joined_text(blocks, "\n")


def _repeat_results(request: ProviderRequest) -> str:
    """Return the results of the last message, a line each, in their order; may be empty."""
    asked = {
        block.id: block
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolUseBlock)
    }
    results = request.messages[-1].content if request.messages and not _prompt(request) else ()
    return "\n".join(
        _line(asked.get(block.tool_use_id), block)
        for block in results
        if isinstance(block, ToolResultBlock)
    )


def _line(call: ToolUseBlock | None, result: ToolResultBlock) -> str:
    said = cut_text(result.content.strip(), MAX_REPEATED)
    subject = ", ".join(map(str, call.input.values())) if call else "a tool"
    return f"{subject}: failed: {said}" if result.is_error else f"{subject}: {said}"


def _text_events(text: str) -> Iterator[ProviderEvent]:
    yield BlockStart(0, TextBlock(""))
    yield from (TextDelta(0, piece) for piece in _pieces(text))
    yield BlockStop(0)


def _call_events(index: int, call: ToolUseBlock) -> Iterator[ProviderEvent]:
    yield BlockStart(index, attrs.evolve(call, input={}))
    yield from (InputDelta(index, piece) for piece in _pieces(dump_json(call.input)))
    yield BlockStop(index)


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def _sent(request: ProviderRequest) -> str:
    """Return roughly what was sent, to count its tokens."""
    blocks = [block for message in request.messages for block in message.content]
    return request.system + "".join(map(str, (*request.tools, *blocks)))


def _tokens(text: str) -> int:
    return -(-len(text) // _TOKEN)


# --- what a prompt names --------------------------------------------------------------------


def find_zones(prompt: str) -> list[str]:
    """Return the zones of the cities *prompt* names: each once, in order of appearance.

    Case, accents, and whether a space, hyphen or underscore stands between words do not matter; where
    one name is inside another, the longest counts.  A URL names no city.
    """
    text = _plain(_URL.sub(" ", prompt))
    found = (_spelling(match[0]) for match in _pattern().finditer(text))
    return list(dict.fromkeys(_zones()[name] for name in found))


def find_urls(prompt: str) -> list[str]:
    """Return the URLs in *prompt*: each once, in order, without the punctuation of their sentence."""
    return list(dict.fromkeys(match[0].rstrip(".,;:!?)]}") for match in _URL.finditer(prompt)))


@cache
def _zones() -> Mapping[str, str]:
    """Return the zone of each city, by the city's spelling.

    A city with several zones (old names stay in the list) gets the one in ``zone.tab``, else the last.
    """
    current = current_zone_names()
    listed = sorted((n for n in zone_names() if n.startswith(_AREAS)), key=current.__contains__)
    cities = {_spelling(name.rsplit("/", 1)[1]): name for name in listed}
    return {city: zone for city, zone in cities.items() if city not in _NO_CITIES}


@cache
def _pattern() -> re.Pattern[str]:
    longest_first = sorted(_zones(), key=lambda city: (-len(city), city))
    cities = "|".join(re.escape(city).replace(r"\ ", "[ _-]") for city in longest_first)
    return re.compile(rf"(?<!\w)(?:{cities})(?!\w)")


def _plain(text: str) -> str:
    """Return *text* without case, accents and underscores: "São_Paulo" is "sao paulo"."""
    letters = unicodedata.normalize("NFKD", text.replace("_", " ").casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _spelling(name: str) -> str:
    return _plain(name).replace("-", " ")
