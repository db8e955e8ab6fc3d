"""Positions in the content of a run: the ids of its events.

Rule: a position follows from what is stored and from the open answer alone, so every process finds the
same ones, and nothing is stored for those who watch.  They only grow, whatever crashes or breaks off.

The position of a piece of content is the number of places before it, plus `GENERATION` for each
generation before the one that wrote it.  A generation is a try at an answer: a claim begins one, and so
does an answer that is asked for again after it broke off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import attrs

from hango.domain import Block, MessageRole, StopReason, TextBlock, ThinkingBlock, Usage

CREATED: Final = 0
STARTED: Final = 1
FIRST: Final = 2  # the first place of the first answer
GENERATION: Final = 2**23  # more than the places of one answer: see `accumulator.MAX_ANSWER`
RESTARTS: Final = 2**12  # generations of one claim; the last one is not shown before it is stored
MAX_POSITION: Final = 2**53 - 1  # what a program in JavaScript can count to


@attrs.frozen
class RunMessage:
    """A stored message of a run, of turn 1 or later.

    Attributes:
        claim_epoch: of the claim that wrote it.
        restarts: answers that had broken off under that claim before it was written.
    """

    id: UUID
    turn: int
    role: MessageRole
    content: tuple[Block, ...]
    claim_epoch: int
    restarts: int = 0
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    partial: bool = False
    synthetic: bool = False


@attrs.frozen
class OpenAnswer:
    """The part of an answer that has arrived and is not stored yet.

    Attributes:
        blocks: such that what will be stored begins with them; the last one may grow.
    """

    turn: int
    claim_epoch: int
    restarts: int
    blocks: tuple[Block, ...]


@attrs.frozen
class Place:
    """Where a message begins, or the next one will.

    Attributes:
        places: the number of places before it.
        end: the position of the last event before it.
    """

    places: int = FIRST
    end: int = STARTED

    def start(self, generation: int) -> int:
        """Return the position of its first event if *generation* writes it."""
        return self.places + generation * GENERATION

    def after(self, message: RunMessage) -> Place:
        """Return the place after *message*, which is here."""
        size = message_size(message)
        first = self.start(generation_of(message.claim_epoch, message.restarts))
        return Place(self.places + size, first + size - 1)


def generation_of(claim_epoch: int, restarts: int = 0) -> int:
    """Return the number of a generation, from 0; it grows with the claims of a run and within each."""
    return max(claim_epoch - 1, 0) * RESTARTS + min(restarts, RESTARTS - 1)


def shown_while_open(restarts: int) -> bool:
    """Return whether an answer after so many *restarts* may be shown before it is stored.

    Later ones share the last generation, in which a reader could not tell one from the next.
    """
    return restarts < RESTARTS - 1


def block_size(block: Block) -> int:
    """Return the places of a block: its start, each character and its end, or one for all of it."""
    match block:
        case TextBlock(text):
            return len(text) + 2
        case ThinkingBlock(thinking=text):
            return len(text) + 2
        case _:
            return 1


def message_size(message: RunMessage) -> int:
    """Return the places of a message: of an answer also one for its end."""
    if message.role == "user":
        return len(message.content)
    return sum(map(block_size, message.content)) + 1


def placed(messages: Iterable[RunMessage], place: Place) -> Iterator[tuple[Place, RunMessage]]:
    """Yield *messages*, which are in order and begin at *place*, each with its own place."""
    for message in messages:
        yield place, message
        place = place.after(message)
