"""The answers a scripted provider gives, and the words to write them in.

One rule: an answer is a list of steps, and the words only make such lists; what they cannot say can be
written as ``Answer((step, ...))``.

    FakeProvider([call("get_time", {"timezone": "Asia/Tokyo"}), text("It is late.")])
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypeAlias

import attrs
import trio

from hango.domain import (
    Block,
    BlockStart,
    BlockStop,
    InputDelta,
    JsonObject,
    OpaqueBlock,
    ProviderEvent,
    RedactedThinkingBlock,
    SignatureDelta,
    Stop,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UsageUpdate,
)

Step: TypeAlias = ProviderEvent | Exception | trio.Event
"""An event is told, an exception raised, a trio event waited for."""

USAGE = Usage(input_tokens=10, output_tokens=5)


@attrs.frozen
class Answer:
    """What one call to the provider comes to: *steps*, in order, from `answer` and its siblings."""

    steps: tuple[Step, ...]


def text(said: str) -> TextBlock:
    """Say something."""
    return TextBlock(said)


def thinking(thought: str, signature: str = "") -> ThinkingBlock:
    """Think something, signed or not."""
    return ThinkingBlock(thought, signature)


def call(name: str, arguments: JsonObject | str | None = None, *, id: str = "") -> ToolUseBlock:  # noqa: A002 - the word of the block
    """Ask for a tool.

    Args:
        name: of the tool.
        arguments: an object, or a text that is sent as it is, be it JSON or not.
        id: empty for one made of the turn, as ``call_1_0``.
    """
    if isinstance(arguments, str):
        return ToolUseBlock(id, name, raw_input=arguments)
    return ToolUseBlock(id, name, arguments or {})


def answer(*blocks: Block, stop: StopReason | None = None, usage: Usage = USAGE) -> Answer:
    """Give a whole answer.

    Args:
        blocks: in order; may be empty.
        stop: what it is labelled; if not given, as its content has it.
        usage: what it costs.
    """
    asks = any(isinstance(block, ToolUseBlock) for block in blocks)
    reason = stop or (StopReason.TOOL_USE if asks else StopReason.END_TURN)
    return Answer((*_tell(blocks), UsageUpdate(usage), Stop(reason)))


def broken(*blocks: Block, complete: bool = False) -> Answer:
    """Break off after *blocks*, without an error; the last block is cut too unless *complete*."""
    steps = tuple(_tell(blocks))
    return Answer(steps if complete else steps[:-1])


def failing(error: Exception, *blocks: Block) -> Answer:
    """Raise *error*, before any content or after *blocks*."""
    return Answer((*_tell(blocks), error))


def waiting(gate: trio.Event, then: Answer | Block) -> Answer:
    """Wait for *gate*, then give another answer."""
    return Answer((gate, *as_answer(then).steps))


def hanging(*blocks: Block) -> Answer:
    """Say *blocks*, then nothing more, until the call is cancelled."""
    return Answer((*_tell(blocks), trio.Event()))


def as_answer(value: Answer | Block) -> Answer:
    """Return *value* as an answer: a block alone is a whole one."""
    return value if isinstance(value, Answer) else answer(value)


def _tell(blocks: tuple[Block, ...]) -> Iterator[ProviderEvent]:
    for index, block in enumerate(blocks):
        yield from _tell_one(index, block)
        yield BlockStop(index)


def _tell_one(index: int, block: Block) -> Iterator[ProviderEvent]:
    """Tell a block as a model does: in two pieces, so that nobody takes the first for the whole."""
    match block:
        case TextBlock(said):
            yield BlockStart(index, TextBlock(""))
            yield from (TextDelta(index, piece) for piece in _halves(said))
        case ThinkingBlock(thought, signature):
            yield BlockStart(index, ThinkingBlock(""))
            yield from (ThinkingDelta(index, piece) for piece in _halves(thought))
            if signature:
                yield SignatureDelta(index, signature)
        case ToolUseBlock(id, name, arguments, raw):
            yield BlockStart(index, ToolUseBlock(id, name))
            written = json.dumps(arguments) if raw is None else raw
            yield from (InputDelta(index, piece) for piece in _halves(written))
        case RedactedThinkingBlock() | ToolResultBlock() | OpaqueBlock():
            yield BlockStart(index, block)
        case _:  # tests need not be typed
            raise AssertionError(f"{block!r} is neither an answer nor a block")


def _halves(whole: str) -> tuple[str, str]:
    middle = len(whole) // 2
    return whole[:middle], whole[middle:]
