"""Blocks as they arrive, and what becomes of them when the answer ends.

Rule: every finished block can be stored, alone and with the others of its answer.  A call whose
arguments are not a complete JSON object keeps them as text; they are never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import attrs

from hango.call_ids import CallIds
from hango.codec import PartsCleaner, clean_text, cut_text, dump_json
from hango.domain import (
    Block,
    JsonObject,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    Usage,
)
from hango.domain.defaults import MAX_TOKEN_COUNT
from hango.errors import InvalidInput
from hango.text import join_surrogates

# Bytes of one block: as much as a client may send in one request (HANGO_MAX_BODY).
MAX_BLOCK = 1024 * 1024
# Bytes of a call's name, and of its id; APIs allow 64 to 128 characters.
MAX_NAME = 256


@attrs.define(eq=False)
class OpenBlock:
    """A block as it arrives.

    Attributes:
        parts: of its text, thinking or arguments, in order.
        signature: of a thinking block, so far.
        stopped: whether its end was announced.
        cut: whether something of it did not fit; then nothing more is kept.
    """

    index: int
    block: Block
    parts: list[str] = attrs.field(factory=list)
    signature: str = ""
    stopped: bool = False
    cut: bool = False

    @property
    def streamed(self) -> str:
        """What has arrived of it, as one text."""
        return join_surrogates("".join(self.parts))

    @property
    def empty(self) -> bool:
        """Whether it is a text or thinking of which nothing has arrived."""
        prose = isinstance(self.block, TextBlock | ThinkingBlock)
        return prose and not self.signature and not any(self.parts)


def finish_blocks(started: Iterable[OpenBlock], turn: int, *, whole: bool) -> tuple[Block, ...]:
    """Return the blocks of an answer in the order of their indexes; may be empty.

    A call that is not complete keeps its arguments as text, unless the *whole* answer has come.
    """
    parts = PartsCleaner()
    ordered = sorted(started, key=lambda it: it.index)
    found = [finish_block(it, parts, whole=(whole or it.stopped) and not it.cut) for it in ordered]
    return tuple(_with_ids([block for block in found if block is not None], turn))


def finish_block(started: OpenBlock, parts: PartsCleaner, *, whole: bool) -> Block | None:
    """Return the finished block; None if there is nothing to keep.

    *parts* is shared by the blocks of an answer, which are finished in the order of their indexes.
    """
    match started.block:
        case TextBlock():
            text = cut_text(started.streamed, MAX_BLOCK)
            return TextBlock(text) if text.strip() else None
        case ThinkingBlock(provider=provider):
            signature = "" if started.cut else started.signature
            return _thinking(started.streamed, signature, provider)
        case ToolUseBlock() as call:
            return _call(call, started.streamed, parts, whole=whole)
        case RedactedThinkingBlock(data):
            return started.block if cut_text(data, MAX_BLOCK) == data else None
        case OpaqueBlock(provider, raw):
            return _opaque(provider, raw, parts)
        case _:
            return None


def _thinking(streamed: str, signature: str, provider: str | None) -> Block | None:
    """Return reasoning; its signature is kept only if the text is still what was signed."""
    thinking = cut_text(streamed, MAX_BLOCK)
    if thinking != streamed or clean_text(signature) != signature:
        signature = ""
    return ThinkingBlock(thinking, signature, provider) if thinking or signature else None


def _opaque(provider: str, raw: JsonObject, parts: PartsCleaner) -> Block | None:
    cleaned = _object(raw, parts)
    if cleaned is None or len(dump_json(cleaned)) > MAX_BLOCK:
        return None
    return OpaqueBlock(provider, cleaned)


def _call(call: ToolUseBlock, streamed: str, parts: PartsCleaner, *, whole: bool) -> ToolUseBlock:
    """Return the call with its arguments parsed; arguments that are no JSON object stay text."""
    name = cut_text(call.name, MAX_NAME)
    call_id = call.id if cut_text(call.id, MAX_NAME) == call.id else ""
    raw = streamed if streamed.strip() else call.raw_input
    arguments: JsonObject | None = None
    if whole:
        arguments = _object(call.input, parts) if raw is None else _parse(raw, parts)
    if arguments is not None:
        return ToolUseBlock(call_id, name, arguments)
    kept = repr(call.input) if raw is None and whole else raw or ""
    return ToolUseBlock(call_id, name, raw_input=cut_text(kept, MAX_BLOCK))


def _parse(text: str, parts: PartsCleaner) -> JsonObject | None:
    if len(text) > MAX_BLOCK:
        return None
    try:
        value = json.loads(text)
        return {} if value is None else _object(value, parts)  # some write null for no arguments
    except (ValueError, RecursionError):  # not JSON, or a number or a nesting beyond Python's bounds
        return None


def _object(value: object, parts: PartsCleaner) -> JsonObject | None:
    """Return *value* cleaned if it is a JSON object that can be stored, else None."""
    try:
        cleaned = parts.clean(value)
    except InvalidInput:
        return None
    return cleaned if isinstance(cleaned, dict) else None


def checked_usage(usage: Usage) -> Usage:
    """Return *usage*; a count that is no count is 0."""
    counts = attrs.astuple(usage)
    return Usage(*(n if type(n) is int and 0 <= n <= MAX_TOKEN_COUNT else 0 for n in counts))


def _with_ids(blocks: Sequence[Block], turn: int) -> Iterator[Block]:
    """Give calls whose id is missing, or used before in this answer, an id of their own."""
    ids, used = CallIds((b.id for b in blocks if isinstance(b, ToolUseBlock)), turn=turn), {""}
    for block in blocks:
        if not isinstance(block, ToolUseBlock):
            yield block
            continue
        yield attrs.evolve(block, id=ids.give(block.id)) if block.id in used else block
        used.add(block.id)
