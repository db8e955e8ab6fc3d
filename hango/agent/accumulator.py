"""The accumulator: collects the events of one provider call into the blocks of one message.

Rule: any sequence of events becomes blocks that can be stored and sent back.  Nothing here raises.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from hango.agent.blocks import MAX_BLOCK, OpenBlock, checked_usage, finish_blocks
from hango.domain import (
    Block,
    BlockStart,
    BlockStop,
    InputDelta,
    ProviderEvent,
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
    sum_usage,
)
from hango.domain.defaults import MAX_TOOL_CALLS

# Characters of one answer; the longest of today's models are near 1 MiB.
MAX_ANSWER = 8 * MAX_BLOCK
# Characters that a block counts for besides its content, so that empty ones are bounded too.
# At this cost they are some thousand, which can be stored as one message.
BLOCK_COST = 2048


@attrs.frozen
class ModelAnswer:
    """The answer of one provider call.

    Attributes:
        content: in the order of the provider's indexes; may be empty.
        stop_reason: None when the answer was cut short.
        usage: of this call, and of those for the same answer that broke off; None when the provider has
            told none.
        refused_calls: calls beyond the bound of one turn; not in `content`.
    """

    content: tuple[Block, ...]
    stop_reason: StopReason | None
    usage: Usage | None
    refused_calls: int = 0

    @property
    def billed(self) -> Usage:
        """The tokens that count: those that are known."""
        return self.usage or Usage()

    @property
    def calls(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls, in request order; may be empty."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


@attrs.define
class Accumulator:
    """Collects one answer.

    Attributes:
        turn: number of the turn; missing call ids are made from it.
        max_calls: tool calls kept; the rest are only counted.
        lost: tokens of earlier calls for the same answer, which broke off; None when unknown.
        _blocks: all blocks, in the order they started.
        _open: the block that a delta belongs to, by index.
        _usage: tokens as far as the provider has reported them; None before it does.
        _reason: the stop reason; None until the end.
        _calls: tool calls that have started, refused ones included.
        _room: characters that still fit.
    """

    turn: int
    max_calls: int = MAX_TOOL_CALLS
    lost: Usage | None = None
    _blocks: list[OpenBlock] = attrs.field(factory=list, init=False)
    _open: dict[int, OpenBlock] = attrs.field(factory=dict, init=False)
    _usage: Usage | None = attrs.field(default=None, init=False)
    _reason: StopReason | None = attrs.field(default=None, init=False)
    _calls: int = attrs.field(default=0, init=False)
    _room: int = attrs.field(default=MAX_ANSWER, init=False)

    @property
    def finished(self) -> bool:
        """Whether the answer is whole: its `Stop` has been seen."""
        return self._reason is not None

    @property
    def empty(self) -> bool:
        """Whether no content has arrived yet, so that the call may be repeated."""
        return not self._calls and all(started.empty for started in self._blocks)

    @property
    def started(self) -> Sequence[OpenBlock]:
        """All blocks, in the order they started; they grow as the answer arrives."""
        return self._blocks

    @property
    def usage(self) -> Usage | None:
        """Tokens of the answer as far as they are known, lost ones included; None if none are."""
        return sum_usage(self.lost, self._usage)

    def push(self, event: ProviderEvent) -> None:
        """Add the next event; one after a `Stop`, of no block, or of an unknown kind is ignored."""
        if self.finished:
            return
        match event:
            case BlockStart(index, block):
                self._start(index, block)
            case TextDelta(index, text):
                self._extend(index, TextBlock(""), text)
            case ThinkingDelta(index, thinking):
                self._extend(index, ThinkingBlock(""), thinking)
            case SignatureDelta(index, signature):
                self._sign(index, signature)
            case InputDelta(index, partial_json):
                self._extend(index, ToolUseBlock("", ""), partial_json)
            case BlockStop(index) if index in self._open:
                self._open[index].stopped = True
            case UsageUpdate(usage):
                self._usage = checked_usage(usage)
            case Stop(reason):
                self._reason = reason

    def answer(self) -> ModelAnswer:
        """Return the answer so far, with every block taken as complete."""
        return self._collect(whole=True)

    def partial(self) -> ModelAnswer:
        """Return the answer so far; a call that is not complete keeps its arguments as raw text."""
        return self._collect(whole=False)

    def _start(self, index: int, block: Block) -> None:
        if isinstance(block, ToolResultBlock) or self._repeated(index, block):
            return
        self._open.pop(index, None)  # deltas now belong to this block, or to none
        if isinstance(block, ToolUseBlock):
            self._calls += 1
            if self._calls > self.max_calls:
                return
        if not self._take(BLOCK_COST):
            return
        started = self._open[index] = OpenBlock(index, block)
        self._blocks.append(started)
        match block:
            case TextBlock(text):
                self._extend(index, block, text)
            case ThinkingBlock(thinking, signature):
                self._extend(index, block, thinking)
                started.signature = signature

    def _repeated(self, index: int, block: Block) -> bool:
        """Return whether a call starts a second time: with the same id, at its own index."""
        match block, self._open.get(index):
            case ToolUseBlock(id=again), OpenBlock(block=ToolUseBlock(id=known)):
                return again == known != ""
        return False

    def _block_at(self, index: int, kind: Block) -> OpenBlock | None:
        """Return the block that a delta belongs to; a text that was never announced starts here."""
        if index not in self._open and not isinstance(kind, ToolUseBlock):
            self._start(index, kind)
        started = self._open.get(index)
        return started if started is not None and type(started.block) is type(kind) else None

    def _extend(self, index: int, kind: Block, piece: str) -> None:
        started = self._block_at(index, kind)
        if started is not None and piece:
            started.cut = started.cut or not self._take(len(piece))
            started.parts += [] if started.cut else [piece]

    def _sign(self, index: int, signature: str) -> None:
        started = self._block_at(index, ThinkingBlock(""))
        if started is not None and self._take(len(signature)):
            started.signature = signature

    def _take(self, characters: int) -> bool:
        """Use up room; once something did not fit, nothing more does, so no text has gaps."""
        self._room -= characters
        return self._room >= 0

    def _collect(self, *, whole: bool) -> ModelAnswer:
        content = finish_blocks(self._blocks, self.turn, whole=whole)
        refused = max(self._calls - self.max_calls, 0)
        return ModelAnswer(content, self._reason, self.usage, refused)
