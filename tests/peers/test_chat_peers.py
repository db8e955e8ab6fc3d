"""Runs of the real loop, through the real adapter, against servers that others wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from peers.server import peer

from hango.agent import AgentLoop, ExecutionOptions, LoopLimits
from hango.domain import (
    OutcomeStatus,
    PromptMessage,
    ProviderRequest,
    RunEvent,
    RunOutcome,
    StopReason,
    Streamed,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from hango.errors import ContextExceeded, ProviderError
from hango.providers import OpenAIProvider
from hango.testing import MemoryLedger
from hango.tools import Registry
from hango.tools.builtin import make_get_time

from support.checked_transcript import CheckedTranscript

NOON = datetime(2026, 7, 1, 3, 0, tzinfo=UTC)
ASKED = "What time is it in Tokyo and Berlin?"
ANSWER = "It is noon in Tokyo (正午 🕛) and early in Berlin."
ZONES = ("Asia/Tokyo", "Europe/Berlin")
RESULTS = (
    "2026-07-01T12:00:00+09:00 (Asia/Tokyo, Wednesday)",
    "2026-07-01T05:00:00+02:00 (Europe/Berlin, Wednesday)",
)

# Well-formed streams: arguments in fragments, ids of its own, no usage.
FAKELLM: Mapping[str, object] = {
    "rules": [
        {
            "name": "answer",
            "when": {"tool_result_contains": RESULTS[1], "tools_include": "get_time"},
            "respond": {"content": ANSWER},
        },
        {
            "name": "ask",
            "when": {"messages_contain": ASKED, "tools_include": "get_time"},
            "respond": {
                "tool_calls": [{"name": "get_time", "arguments": {"timezone": zone}} for zone in ZONES]
            },
        },
    ]
}


def _rule(name: str, messages: Sequence[Mapping[str, object]], **response: object) -> object:
    """Write a rule of stubllm."""
    quick = {"stream_chunk_delay_ms": 0, **response}
    return {"name": name, "match": {"messages": messages}, "response": quick}


def _said(role: str, text: str) -> Mapping[str, object]:
    return {"role": role, "content": {"exact": text}}


# Every index 0, one id for all calls, no finish reason, arguments whole.
STUBLLM: Mapping[str, object] = {
    "fixtures": [
        _rule(
            "ask",
            [_said("user", ASKED)],
            tool_calls=[
                {"function": {"name": "get_time", "arguments": f'{{"timezone": "{zone}"}}'}}
                for zone in ZONES
            ],
        ),
        _rule(
            "answer",
            [_said("user", ASKED), *(_said("tool", result) for result in RESULTS)],
            content=ANSWER,
        ),
        _rule("busy", [_said("user", "busy")], http_status=429, error_code="rate_limit_exceeded"),
        _rule("long", [_said("user", "long")], http_status=400, error_code="context_length_exceeded"),
    ]
}

PEERS = pytest.mark.parametrize(
    ("name", "rules"), [("fakellm", FAKELLM), ("stubllm", STUBLLM)], ids=["fakellm", "stubllm"]
)


@attrs.define
class Events:
    """Keeps the events of a run."""

    seen: list[RunEvent] = attrs.field(factory=list)

    def emit(self, event: RunEvent) -> None:
        """Keep *event*."""
        self.seen.append(event)


async def run(url: str, transcript: CheckedTranscript, events: Events) -> RunOutcome:
    """Execute one run: the prompt, until the model is done."""
    registry = Registry()
    registry.register(make_get_time(lambda: NOON))
    loop = AgentLoop(
        run_id=transcript.run_id,
        provider=OpenAIProvider(url, "any-key", timeout=30.0),
        tools=registry.view((), timeout=5.0, result_limit=1000),
        transcript=transcript,
        ledger=MemoryLedger(),
        model="any-model",
        system_prompt="Be brief.",
        limits=LoopLimits(max_iterations=4, tries=1),
        scope=None,
        usage=Usage(),
    )
    outcome = await loop.run(transcript.session_id, (TextBlock(ASKED),), events, ExecutionOptions())
    assert isinstance(outcome, RunOutcome)
    return outcome


@PEERS
@pytest.mark.rule(15)
async def test_a_run_with_tools_is_done(name: str, rules: Mapping[str, object], tmp_path: Path) -> None:
    """Two calls at once, their results, the answer: asked and told by a server we did not write."""
    transcript = CheckedTranscript()
    async with peer(name, rules, tmp_path) as url:
        outcome = await run(url, transcript, Events())
    assert (outcome.status, outcome.error) == (OutcomeStatus.DONE, None)
    assert (outcome.iterations, outcome.stop_reason) == (2, StopReason.END_TURN)
    assert outcome.messages[-1].content == (TextBlock(ANSWER),)
    blocks = [block for message in transcript.messages for block in message.content]
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    assert [call.input for call in calls] == [{"timezone": zone} for zone in ZONES]
    assert len({call.id for call in calls}) == len(calls)
    told = [(result.tool_use_id, result.content) for result in results]
    assert told == [(call.id, result) for call, result in zip(calls, RESULTS, strict=True)]


@PEERS
async def test_the_answer_is_streamed(name: str, rules: Mapping[str, object], tmp_path: Path) -> None:
    """It comes in pieces, characters of several bytes whole."""
    events = Events()
    async with peer(name, rules, tmp_path) as url:
        await run(url, CheckedTranscript(), events)
    streamed = [seen.event for seen in events.seen if isinstance(seen, Streamed)]
    pieces = [event.text for event in streamed if isinstance(event, TextDelta)]
    assert "".join(pieces) == ANSWER
    assert len(pieces) > 5


async def test_errors_of_a_server_are_understood(tmp_path: Path) -> None:
    """One that passes, and a conversation that is too long."""
    async with peer("stubllm", STUBLLM, tmp_path) as url:
        with pytest.raises(ProviderError) as caught:
            await ask(url, "busy")
        with pytest.raises(ContextExceeded):
            await ask(url, "long")
    assert (caught.value.code, caught.value.retryable) == ("rate_limit_exceeded", True)


async def test_a_wrong_address_is_named(tmp_path: Path) -> None:
    """The server is there, its API is not."""
    async with peer("fakellm", FAKELLM, tmp_path) as url:
        with pytest.raises(ProviderError, match="answered 404"):
            await ask(f"{url}/v2", "hi")


async def ask(url: str, text: str) -> None:
    """Ask once and read all of it."""
    request = ProviderRequest("any-model", "", (PromptMessage("user", (TextBlock(text),)),), (), 1)
    async with OpenAIProvider(url).stream(request) as events:
        async for _ in events:
            pass
