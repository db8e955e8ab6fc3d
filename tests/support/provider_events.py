"""Streams of events, and what the accumulator makes of them."""

from __future__ import annotations

from hango.agent.accumulator import Accumulator, ModelAnswer
from hango.domain import (
    BlockStart,
    BlockStop,
    InputDelta,
    ProviderEvent,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ToolUseBlock,
)

END = Stop(StopReason.END_TURN)


def collect(*events: ProviderEvent, max_calls: int = 64) -> ModelAnswer:
    """Return the answer of turn 3 that *events* make."""
    return accumulate(*events, max_calls=max_calls).answer()


def accumulate(*events: ProviderEvent, max_calls: int = 64) -> Accumulator:
    """Return an accumulator of turn 3 that has seen *events*."""
    accumulator = Accumulator(3, max_calls)
    for event in events:
        accumulator.push(event)
    return accumulator


def call(index: int, *pieces: str, call_id: str = "a", name: str = "get_time") -> list[ProviderEvent]:
    """Return the events of a call whose arguments arrive in *pieces*."""
    deltas = [InputDelta(index, piece) for piece in pieces]
    return [BlockStart(index, ToolUseBlock(call_id, name)), *deltas, BlockStop(index)]


def text(index: int, *pieces: str) -> list[ProviderEvent]:
    """Return the events of a text that arrives in *pieces*."""
    deltas = [TextDelta(index, piece) for piece in pieces]
    return [BlockStart(index, TextBlock("")), *deltas, BlockStop(index)]
