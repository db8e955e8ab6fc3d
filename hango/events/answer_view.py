"""The open answer as it may be shown: what will be stored begins with it.

Rule: a block is shown when all before it have ended, and never changed but at its end.  If the provider
goes on with what had ended, or puts a block before one that was shown, the answer counts as restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import attrs

from hango.agent.blocks import MAX_BLOCK, OpenBlock, finish_block
from hango.codec import PartsCleaner
from hango.domain import Block, TextBlock, ThinkingBlock, ToolUseBlock
from hango.text import TextJoiner

# Bytes at the end of a block that are not shown while it is open: cut, it has a notice there.
_CUT_ROOM = 128


@attrs.define(eq=False)
class _Reader:
    """Reads one block as it arrives; what it gives out is a beginning of what will be stored.

    Attributes:
        ended: nothing more is expected.
        full: it may be cut, so nothing more of it, and of what follows, is shown.
        block: as far as it is shown; None while it may still be dropped, being empty.
        taken: its parts that were read.
        signature: when it was read last.
        room: bytes that may still be shown.
    """

    source: OpenBlock
    ended: bool = False
    full: bool = False
    block: Block | None = None
    taken: int = 0
    room: int = MAX_BLOCK - _CUT_ROOM
    text: str = ""
    signature: str = ""
    joiner: TextJoiner = attrs.field(factory=TextJoiner)

    @property
    def grown(self) -> bool:
        """Whether something arrived after the end that changes what is shown."""
        signed = not self.text and self.source.signature != self.signature
        return self.ended and (len(self.source.parts) > self.taken or signed)

    def read(self, cleaner: PartsCleaner) -> None:
        """Take what has arrived."""
        if not isinstance(self.source.block, TextBlock | ThinkingBlock):
            self.block = finish_block(self.source, cleaner, whole=True)
            self.ended, self.taken = True, len(self.source.parts)
            return
        news = self.source.parts[self.taken :]
        self.taken += len(news)
        self._add(self.joiner.push("".join(news)))
        if self.source.stopped:
            self._add(self.joiner.finish())
            self.ended = True
        self.full = self.full or self.source.cut
        self.signature = self.source.signature
        self.block = self._block()

    def _add(self, piece: str) -> None:
        self.room -= len(piece.encode())
        self.full = self.full or self.room < 0
        if not self.full:
            self.text += piece

    def _block(self) -> Block | None:
        if isinstance(self.source.block, TextBlock):
            return TextBlock(self.text) if self.text.strip() else None
        kept = self.text or (
            self.ended and finish_block(self.source, PartsCleaner(), whole=True) is not None
        )
        return ThinkingBlock(self.text) if kept else None  # the signature is not for people


@attrs.define(eq=False)
class AnswerView:
    """What may be shown of one try at an answer, while it arrives."""

    _readers: list[_Reader] = attrs.field(factory=list, init=False)
    _cleaner: PartsCleaner = attrs.field(factory=PartsCleaner, init=False)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that may be shown, in order; the last one may grow."""
        return tuple(reader.block for reader in self._readers if reader.block is not None)

    def update(self, started: Sequence[OpenBlock]) -> bool:
        """Take what has arrived; return False if it is not a continuation of what was shown.

        Then this view is of no more use.

        Args:
            started: all blocks of the answer, as the accumulator has them.
        """
        ordered = sorted(started, key=attrgetter("index"))
        known = self._readers
        if [it.source for it in known] != ordered[: len(known)] or any(it.grown for it in known):
            return False
        if known and not known[-1].ended:
            known[-1].read(self._cleaner)
        for source in ordered[len(known) :]:
            # A call is shown when it is stored: only then its id and arguments are certain.
            if isinstance(source.block, ToolUseBlock) or (
                known and (known[-1].full or not known[-1].ended)
            ):
                break
            known.append(_Reader(source))
            known[-1].read(self._cleaner)
        return True
