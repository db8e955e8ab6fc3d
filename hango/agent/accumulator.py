"""Turns the events of one provider call into the blocks of one message.

Rule: any sequence of events becomes blocks that can be stored and sent back; nothing here raises, and
a call whose arguments are not a whole JSON object is kept as text, never guessed.  Used by the loop.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import attrs

from hango.codec import clean_json, clean_text, cut_text, dump_json
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
from hango.errors import InvalidInput
from hango.text import join_surrogates

# What one block may hold, in bytes: as much as a client may send in one request (HANGO_MAX_BODY).
MAX_BLOCK = 1024 * 1024
# What is kept of one answer, in characters.  The longest answers of today's models are near 1 MiB;
# the bound is for an endpoint that never stops.
MAX_ANSWER = 8 * MAX_BLOCK
# What a block counts for by being there, so that empty ones are bounded too.
BLOCK_COST = 64
# Bounds of a call's name and id, in bytes; APIs allow 64 to 128 characters.
MAX_NAME = 256


@attrs.frozen
class Answer:
    """What a provider call came to.

    Attributes:
        content: in the order of the provider's indexes; may be empty.
        stop_reason: None when the answer was cut short.
        usage: of this call.
        refused_calls: calls beyond the bound of one turn; not in `content`.
    """

    content: tuple[Block, ...]
    stop_reason: StopReason | None
    usage: Usage
    refused_calls: int = 0

    @property
    def calls(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls, in request order; may be empty."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


@attrs.define(eq=False)
class _Slot:
    """A block on its way: how it began, and the pieces (text, thinking or arguments) since."""

    index: int
    block: Block
    parts: list[str] = attrs.field(factory=list)
    signature: str = ""
    stopped: bool = False
    cut: bool = False

    @property
    def streamed(self) -> str:
        return join_surrogates("".join(self.parts))

    @property
    def empty(self) -> bool:
        prose = isinstance(self.block, TextBlock | ThinkingBlock)
        return prose and not self.signature and not any(self.parts)


@attrs.define
class Accumulator:
    """Collects one answer.

    Attributes:
        turn: number of the turn, from which missing call ids are made.
        max_calls: tool calls kept; the rest are only counted.
    """

    turn: int
    max_calls: int = 64
    _slots: list[_Slot] = attrs.field(factory=list, init=False)
    _open: dict[int, _Slot] = attrs.field(factory=dict, init=False)
    _usage: Usage = attrs.field(factory=Usage, init=False)
    _reason: StopReason | None = attrs.field(default=None, init=False)
    _calls: int = attrs.field(default=0, init=False)
    _room: int = attrs.field(default=MAX_ANSWER, init=False)

    @property
    def finished(self) -> bool:
        """Whether the answer is whole: its `Stop` has been seen."""
        return self._reason is not None

    @property
    def empty(self) -> bool:
        """Whether no content has arrived yet, so that the call can be repeated unnoticed."""
        return not self._calls and all(slot.empty for slot in self._slots)

    @property
    def usage(self) -> Usage:
        """Tokens of this call as far as they are known."""
        return self._usage

    def push(self, event: ProviderEvent) -> None:
        """Take the next event; what follows a `Stop`, fits no block or is unknown is ignored."""
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
                self._usage = usage
            case Stop(reason):
                self._reason = reason

    def answer(self) -> Answer:
        """Return the answer as it is now, every block taken for complete."""
        return self._collect(whole=True)

    def partial(self) -> Answer:
        """Return what has arrived; a call still open keeps its arguments as raw text only."""
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
        slot = self._open[index] = _Slot(index, block)
        self._slots.append(slot)
        match block:
            case TextBlock(text):
                self._extend(index, block, text)
            case ThinkingBlock(thinking, signature):
                self._extend(index, block, thinking)
                slot.signature = signature

    def _repeated(self, index: int, block: Block) -> bool:
        """Return whether a call is announced a second time: its id again, at its own index."""
        match block, self._open.get(index):
            case ToolUseBlock(id=again), _Slot(block=ToolUseBlock(id=known)):
                return again == known != ""
        return False

    def _slot(self, index: int, kind: Block) -> _Slot | None:
        """Return the block a delta belongs to; prose that was never announced begins here."""
        if index not in self._open and not isinstance(kind, ToolUseBlock):
            self._start(index, kind)
        slot = self._open.get(index)
        return slot if slot is not None and type(slot.block) is type(kind) else None

    def _extend(self, index: int, kind: Block, piece: str) -> None:
        slot = self._slot(index, kind)
        if slot is not None and piece:
            slot.cut = slot.cut or not self._take(len(piece))
            slot.parts += [] if slot.cut else [piece]

    def _sign(self, index: int, signature: str) -> None:
        slot = self._slot(index, ThinkingBlock(""))
        if slot is not None and self._take(len(signature)):
            slot.signature = signature

    def _take(self, characters: int) -> bool:
        """Use up room; once something did not fit, nothing more does, so no text has holes."""
        self._room -= characters
        return self._room >= 0

    def _collect(self, *, whole: bool) -> Answer:
        ordered = sorted(self._slots, key=lambda slot: slot.index)
        found = (_finish(slot, whole=(whole or slot.stopped) and not slot.cut) for slot in ordered)
        content = tuple(_with_ids([block for block in found if block is not None], self.turn))
        refused = max(self._calls - self.max_calls, 0)
        return Answer(content, self._reason, self._usage, refused)


def _finish(slot: _Slot, *, whole: bool) -> Block | None:
    """Return the block *slot* came to; None when nothing of it is worth keeping."""
    match slot.block:
        case TextBlock():
            text = cut_text(slot.streamed, MAX_BLOCK)
            return TextBlock(text) if text.strip() else None
        case ThinkingBlock():
            return _thinking(slot.streamed, "" if slot.cut else slot.signature)
        case ToolUseBlock() as call:
            return _call(call, slot.streamed, whole=whole)
        case RedactedThinkingBlock(data):
            return slot.block if cut_text(data, MAX_BLOCK) == data else None
        case OpaqueBlock(provider, raw):
            return _opaque(provider, raw)
        case _:
            return None


def _thinking(streamed: str, signature: str) -> Block | None:
    """Return reasoning; its signature is kept only if the text is still what was signed."""
    thinking = cut_text(streamed, MAX_BLOCK)
    if thinking != streamed or clean_text(signature) != signature:
        signature = ""
    return ThinkingBlock(thinking, signature) if thinking or signature else None


def _opaque(provider: str, raw: JsonObject) -> Block | None:
    try:
        text = dump_json(raw)
    except InvalidInput:
        return None
    return OpaqueBlock(provider, json.loads(text)) if len(text) <= MAX_BLOCK else None


def _call(call: ToolUseBlock, streamed: str, *, whole: bool) -> ToolUseBlock:
    """Return the call with its arguments read, once; arguments that are no object stay text."""
    name = cut_text(call.name, MAX_NAME)
    call_id = call.id if cut_text(call.id, MAX_NAME) == call.id else ""
    raw = streamed if streamed.strip() else call.raw_input
    arguments: JsonObject | None = None
    if whole:
        arguments = _object(call.input) if raw is None else _parse(raw)
    if arguments is not None:
        return ToolUseBlock(call_id, name, arguments)
    kept = repr(call.input) if raw is None and whole else raw or ""
    return ToolUseBlock(call_id, name, raw_input=cut_text(kept, MAX_BLOCK))


def _parse(text: str) -> JsonObject | None:
    if len(text) > MAX_BLOCK:
        return None
    try:
        return _object(json.loads(text))
    except (ValueError, RecursionError):  # not JSON, or a number or a nesting beyond Python's bounds
        return None


def _object(value: object) -> JsonObject | None:
    """Return *value* cleaned if it is a JSON object that can be stored, else None."""
    try:
        cleaned = clean_json(value)
    except InvalidInput:
        return None
    return cleaned if isinstance(cleaned, dict) else None


def _with_ids(blocks: Sequence[Block], turn: int) -> Iterator[Block]:
    """Give calls whose id is missing or taken one of their own (``call_{turn}_{n}``)."""
    taken = {block.id for block in blocks if isinstance(block, ToolUseBlock)}
    used: set[str] = {""}
    ordinal = 0
    for block in blocks:
        if not isinstance(block, ToolUseBlock):
            yield block
            continue
        made = f"call_{turn}_{ordinal}"
        while block.id in used and made in taken:
            made += "_"
        call = attrs.evolve(block, id=made) if block.id in used else block
        used.add(call.id)
        taken.add(call.id)
        ordinal += 1
        yield call
