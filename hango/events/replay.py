"""The events of a run after a position.

Rule: whatever position a reader has reached, on any process and after any crash, what it is given next
ends with the stored text.  An event with an id follows from what is stored or open; a hint has none.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from hango.codec import blocks_to_json
from hango.domain import (
    Block,
    JsonObject,
    RunState,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
)
from hango.events.positions import (
    CREATED,
    RESTARTS,
    STARTED,
    OpenAnswer,
    Place,
    RunMessage,
    block_size,
    generation_of,
    placed,
    shown_while_open,
)

MAX_DELTA: Final = 64 * 1024  # characters of one event; clients bound what they take at once


@attrs.frozen
class ReplayedEvent:
    """An event as it is sent.

    Attributes:
        id: its position; None for a hint, which is not sent again.
        name: such as ``block.delta``.
    """

    id: int | None
    name: str
    data: JsonObject


@attrs.frozen
class RunContent:
    """What is known of a run at one moment.

    Attributes:
        state: of the run, when its messages were read or later.
        claim_epoch: of its latest claim; 0 before the first.
        messages: of turn 1 and later, in order, from *place* on.
        open: the answer that arrives, as read before the messages; None if none is known.
        place: where the first of *messages* begins.
    """

    state: RunState
    claim_epoch: int
    messages: Sequence[RunMessage]
    open: OpenAnswer | None = None
    place: Place = attrs.field(factory=Place)

    @property
    def end(self) -> Place:
        """The place after the stored messages."""
        place = self.place
        for message in self.messages:
            place = place.after(message)
        return place

    @property
    def open_turn(self) -> int:
        """The turn whose answer is expected next; 0 while tools run or the answer is judged."""
        if not self.messages:
            return 1
        last = self.messages[-1]
        return last.turn + 1 if last.role == "user" else 0

    @property
    def last_position(self) -> int | None:
        """The position of the run's last event; None while the run may go on."""
        if not self.state.terminal:
            return None
        # beyond all that may have been shown under the last claim
        return self.end.start(generation_of(self.claim_epoch, RESTARTS)) + 1

    @property
    def next_start(self) -> int | None:
        """Where what follows the stored messages begins; None if that is not known."""
        if self.last_position is not None:
            return self.last_position
        if self.state is RunState.QUEUED:  # whatever was open is gone: the next claim begins anew
            return self.end.start(generation_of(self.claim_epoch + 1))
        shown = self.shown
        return self.end.start(generation_of(shown.claim_epoch, shown.restarts)) if shown else None

    @property
    def shown(self) -> OpenAnswer | None:
        """The open answer, if it is that of the run's claim and of the next turn."""
        answer = self.open
        if answer is None or self.state is not RunState.RUNNING:
            return None
        current = (answer.claim_epoch, answer.turn) == (self.claim_epoch, self.open_turn)
        return answer if current and shown_while_open(answer.restarts) else None


def events_after(content: RunContent, position: int) -> Iterator[ReplayedEvent]:
    """Yield the events of a run after *position* (-1: all), as far as they are known.

    The id of the last one is the position to go on from.
    """
    if position < CREATED:
        yield ReplayedEvent(CREATED, "run.created", {})
    if position < STARTED and content.claim_epoch:
        yield ReplayedEvent(STARTED, "run.started", {})
    for place, message in placed(content.messages, content.place):
        start = place.start(generation_of(message.claim_epoch, message.restarts))
        yield from _restarted(place.end, start, position, message.turn)
        yield from _message_events(message, start, position)
    yield from _what_follows(content, position)


def _what_follows(content: RunContent, position: int) -> Iterator[ReplayedEvent]:
    """Yield the events after the stored messages: of the open answer, or of the end of the run."""
    end, start, answer = content.end, content.next_start, content.shown
    if start is None:
        # Nothing is known of an answer: it may be that of *position*, unless another claim's.
        start = end.start(generation_of(content.claim_epoch))
        if position >= start:
            return
    yield from _restarted(end.end, start, position, content.open_turn)
    if content.last_position is not None:
        if position < content.last_position:
            yield ReplayedEvent(content.last_position, f"run.{content.state}", {})
    elif answer is not None:
        yield from _answer_events(answer.blocks, answer.turn, start, position, whole=False)


def _restarted(end: int, start: int, position: int, turn: int) -> Iterator[ReplayedEvent]:
    """Yield the event for a reader whose *position* is in a generation that is gone."""
    if end < position < start - 1:
        yield ReplayedEvent(start - 1, "turn.restarted", {"turn": turn})


def _message_events(message: RunMessage, start: int, position: int) -> Iterator[ReplayedEvent]:
    if message.role == "user":
        for number, block in enumerate(message.content, start):
            if position < number:
                yield _reply_event(block, message.turn, number)
        return
    yield from _answer_events(message.content, message.turn, start, position, whole=True)
    last = start + sum(map(block_size, message.content))
    if position < last:
        yield ReplayedEvent(last, "turn.done", _turn_done(message))


def _turn_done(message: RunMessage) -> JsonObject:
    return {
        "turn": message.turn,
        "message_id": str(message.id),
        "stop_reason": message.stop_reason,
        "usage": attrs.asdict(message.usage) if message.usage else None,
        "partial": message.partial,
        "synthetic": message.synthetic,
    }


def _reply_event(block: Block, turn: int, position: int) -> ReplayedEvent:
    """Return the event of a tool's result, or of what the completion gate said."""
    if isinstance(block, ToolResultBlock):
        return ReplayedEvent(position, "tool.result", {"turn": turn, **_json(block)})
    return ReplayedEvent(position, "attempt.rejected", {"turn": turn, **_json(block)})


def _json(block: Block) -> JsonObject:
    (found,) = blocks_to_json([block])
    return found


def _answer_events(
    blocks: Sequence[Block], turn: int, start: int, position: int, *, whole: bool
) -> Iterator[ReplayedEvent]:
    """Yield the events of an answer's blocks; the last one has an end only if the answer is *whole*."""
    for index, block in enumerate(blocks):
        of_block: JsonObject = {"turn": turn, "block": index}
        ended = whole or index < len(blocks) - 1
        match block:
            case TextBlock(text) | ThinkingBlock(thinking=text):
                kind: JsonObject = {**of_block, "type": block.TYPE}
                if position < start:
                    yield ReplayedEvent(start, "block.started", kind)
                yield from _deltas(text, of_block, start, position)
                if ended and position < start + len(text) + 1:
                    yield ReplayedEvent(start + len(text) + 1, "block.done", kind)
            case _ if position < start:
                yield ReplayedEvent(start, "block.done", {**of_block, **_json(block)})
            case _:
                pass
        start += block_size(block)


def _deltas(text: str, of_block: JsonObject, start: int, position: int) -> Iterator[ReplayedEvent]:
    for begin in range(max(position - start, 0), len(text), MAX_DELTA):
        piece = text[begin : begin + MAX_DELTA]
        yield ReplayedEvent(start + begin + len(piece), "block.delta", {**of_block, "text": piece})
