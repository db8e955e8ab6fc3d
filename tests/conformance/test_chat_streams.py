"""Every dialect of Chat Completions comes to the same thing, over a real socket."""

from __future__ import annotations

import pytest
from conformance.chat.arguments import ARGUMENTS
from conformance.chat.broken import FAILED
from conformance.chat.labels import LABELS
from conformance.chat.places import PLACES
from conformance.chat.rows import Failed, Whole
from conformance.chat.texts import TEXT
from conformance.chat.thoughts import THOUGHT

from hango.agent.accumulator import Accumulator
from hango.domain import (
    PromptMessage,
    ProviderRequest,
    TextBlock,
    ToolDefinition,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.errors import ProviderError
from hango.providers import OpenAIProvider

from support.llm_server import Reply, chunked_reply, serve_llm, stream_reply

WHOLE = (*TEXT, *THOUGHT, *ARGUMENTS, *PLACES, *LABELS)

REQUEST = ProviderRequest(
    "model",
    "",
    (
        PromptMessage("user", (TextBlock("What time is it?"),)),
        PromptMessage("assistant", (ToolUseBlock("earlier", "get_time"),)),
        PromptMessage("user", (ToolResultBlock("earlier", "noon"),)),
    ),
    (ToolDefinition("get_time", "Tell the time.", {"type": "object"}),),
    turn=3,
)


async def read(reply: Reply) -> tuple[Accumulator, ProviderError | None]:
    """Ask a server that gives *reply*; returns what arrived, and how it failed."""
    accumulator = Accumulator(turn=REQUEST.turn)
    async with serve_llm(reply) as server:
        try:
            async with OpenAIProvider(server.url).stream(REQUEST) as events:
                async for event in events:
                    accumulator.push(event)
        except ProviderError as error:
            return accumulator, error
    return accumulator, None


def named(case: Whole | Failed) -> str:
    """Name a row by where it was seen."""
    return case.seen


@pytest.mark.parametrize("case", WHOLE, ids=named)
@pytest.mark.rule(15)
async def test_a_whole_answer_is_read(case: Whole) -> None:
    """A01-A17, B06, B07, B12: content, stop reason and usage, whoever tells them how."""
    accumulator, error = await read(stream_reply(case.body))
    assert error is None
    answer = accumulator.answer()
    assert answer.content == case.content
    assert (answer.stop_reason, answer.usage) == (case.stop, case.usage)
    assert accumulator.finished


@pytest.mark.parametrize("case", FAILED, ids=named)
@pytest.mark.rule(16)
async def test_a_broken_answer_is_told_as_one(case: Failed) -> None:
    """A13, A14, A17, B12: never taken for whole, and what arrived is kept."""
    accumulator, error = await read(stream_reply(case.body))
    assert error is not None
    assert (type(error).__name__, error.code) == (case.error, case.code)
    assert error.retryable is case.retryable
    assert not accumulator.finished
    assert accumulator.partial().content == case.content
    assert accumulator.usage == case.usage


@pytest.mark.parametrize("end", ["\r\n", "\r"], ids=["CRLF", "CR"])
@pytest.mark.parametrize("case", WHOLE, ids=named)
async def test_the_cuts_of_the_network_change_nothing(case: Whole, end: str) -> None:
    """A01, A02: other line ends, in pieces of three bytes, in chunks of HTTP."""
    body = case.body.replace("\n", end).encode()
    accumulator, error = await read(stream_reply(*(body[i : i + 3] for i in range(0, len(body), 3))))
    assert error is None
    assert accumulator.answer().content == case.content
    accumulator, error = await read(chunked_reply(case.body))
    assert error is None
    assert accumulator.answer().content == case.content
