"""The events of a run: whatever happens to it, every reader ends with the stored text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.agent.accumulator import Accumulator
from hango.codec import blocks_to_json
from hango.domain import (
    Block,
    BlockStart,
    BlockStop,
    InputDelta,
    MessageRole,
    OpaqueBlock,
    ProviderEvent,
    RedactedThinkingBlock,
    RunState,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolUseBlock,
    new_id,
)
from hango.events.answer_view import AnswerView
from hango.events.positions import MAX_POSITION, RESTARTS, OpenAnswer, RunMessage
from hango.events.replay import ReplayedEvent, RunContent, events_after

pytestmark = pytest.mark.rule(31)

PIECES = ["", " ", "\n", "a", "bc ", "é", "\x00", "\ud83d", "\ude00", "\U0001f600", "long " * 9]
STARTS: Sequence[Block] = [
    TextBlock(""),
    TextBlock("t"),
    ThinkingBlock(""),
    ThinkingBlock("h", "s"),
    RedactedThinkingBlock("secret"),
    OpaqueBlock("fake", {"type": "search"}),
    ToolUseBlock("id", "get_time"),
    ToolUseBlock("", "get_time"),
]
MAX_CLAIMS = 5


def provider_event(random: Random, ordered: int) -> ProviderEvent:
    """Return any event, mostly of the block that a well-behaved provider has open."""
    index = ordered if random.random() < 0.9 else random.randrange(4)
    piece = random.choice(PIECES)
    possible: list[ProviderEvent] = [
        BlockStart(index, random.choice(STARTS)),
        TextDelta(index, piece),
        TextDelta(index, piece),
        TextDelta(index, piece),
        ThinkingDelta(index, piece),
        SignatureDelta(index, random.choice(["", "sig"])),
        InputDelta(index, "{}"),
        BlockStop(index),
    ]
    return random.choice(possible)


@attrs.define
class History:
    """What happens to one run; `contents` is what was known of it after each step."""

    random: Random
    first_restarts: int = 0
    contents: list[RunContent] = attrs.field(factory=list)
    messages: tuple[RunMessage, ...] = ()
    epoch: int = 0
    restarts: int = 0
    turn: int = 1

    def happen(self) -> None:
        """Let the run be claimed, again after each crash, until it ends."""
        self.note(RunState.QUEUED)
        while not self.contents[-1].state.terminal:
            self.epoch, self.restarts = self.epoch + 1, self.first_restarts
            self.note(RunState.RUNNING)
            if self.epoch == MAX_CLAIMS:
                self.note(RunState.FAILED)
            elif not self.execute():
                self.note(RunState.QUEUED)

    def note(self, state: RunState, answer: OpenAnswer | None = None) -> None:
        """Remember what is known now."""
        self.contents.append(RunContent(state, self.epoch, self.messages, answer))

    def execute(self) -> bool:
        """Execute turns until the run ends; return False if the process died."""
        while True:
            if not (self.messages and self.messages[-1].role == "assistant"):
                accumulator = self.answer()
                if accumulator is None:
                    return False
                partial = self.random.random() < 0.1
                found = accumulator.partial() if partial else accumulator.answer()
                if self.random.random() < 0.1 or (partial and not found.content):
                    self.note(RunState.CANCELLED)
                    return True
                self.store("assistant", found.content, partial=partial)
                if partial or not found.calls:
                    self.note(RunState.CANCELLED if partial else RunState.SUCCEEDED)
                    return True
                self.note(RunState.RUNNING, self.contents[-1].open)  # read before it was stored
                self.note(RunState.RUNNING)
            if self.random.random() < 0.2:
                return False
            calls = [b for b in self.messages[-1].content if isinstance(b, ToolUseBlock)]
            self.store("user", tuple(ToolResultBlock(call.id, "noon") for call in calls))
            self.turn += 1
            self.note(RunState.RUNNING)

    def store(self, role: MessageRole, content: tuple[Block, ...], *, partial: bool = False) -> None:
        """Store a message of the open turn."""
        message = RunMessage(
            new_id(),
            self.turn,
            role,
            content,
            self.epoch,
            self.restarts,
            partial=partial,
        )
        self.messages += (message,)

    def answer(self) -> Accumulator | None:
        """Let an answer arrive; return it whole or in part, or None if the process died meanwhile."""
        accumulator, view, ordered = Accumulator(self.turn), AnswerView(), 0
        while (chance := self.random.random()) > 0.06:
            if chance > 0.97:
                return None
            if chance > 0.93:  # it broke off, and is asked for again
                self.restarts += 1
                accumulator, view, ordered = Accumulator(self.turn), AnswerView(), 0
                self.note(RunState.RUNNING)
                continue
            event = provider_event(self.random, ordered)
            ordered += isinstance(event, BlockStop)
            accumulator.push(event)
            if not view.update(accumulator.started):
                self.restarts += 1
                view = AnswerView()
                assert view.update(accumulator.started)
            self.check_prefix(view.blocks, accumulator)
            answer = OpenAnswer(self.turn, self.epoch, self.restarts, view.blocks)
            self.note(RunState.RUNNING, answer)
        return accumulator

    def check_prefix(self, shown: Sequence[Block], accumulator: Accumulator) -> None:
        """What is shown is a beginning of what would be stored now."""
        for final in (accumulator.answer().content, accumulator.partial().content):
            for number, (mine, theirs) in enumerate(zip(shown, final, strict=False)):
                last = number == len(shown) - 1
                assert type(mine) is type(theirs)
                assert text_of(theirs).startswith(text_of(mine)) if last else same(mine, theirs)
            assert len(shown) <= len(final)


def text_of(block: Block) -> str:
    """Return the text of a text or thinking block, or all of another one."""
    match block:
        case TextBlock(text) | ThinkingBlock(thinking=text):
            return text
        case _:
            return str(blocks_to_json([block]))


def same(mine: Block, theirs: Block) -> bool:
    """Compare as a watcher sees them."""
    return (mine.TYPE, text_of(mine)) == (theirs.TYPE, text_of(theirs))


@attrs.define
class Reader:
    """A client: keeps what the events say, and the id of the last one."""

    position: int = -1
    turns: dict[int, dict[int, tuple[str, str, bool]]] = attrs.field(factory=dict)
    results: dict[int, int] = attrs.field(factory=dict)
    done: set[int] = attrs.field(factory=set)
    ended: str = ""
    taken: int = 0

    def read(self, content: RunContent, most: float = float("inf")) -> None:
        """Take at most so many events of what there is."""
        for _, event in zip(count_to(most), events_after(content, self.position), strict=False):
            assert event.id is not None
            assert self.position < event.id <= MAX_POSITION
            assert not self.ended
            self.position = event.id
            self.taken += 1
            self.take(event)

    def take(self, event: ReplayedEvent) -> None:
        """Do what a client does with an event."""
        turn, block = event.data.get("turn"), event.data.get("block")
        if event.name == "turn.restarted":
            assert turn not in self.done
            assert isinstance(turn, int)
            self.turns.pop(turn, None)
        elif isinstance(turn, int) and isinstance(block, int):
            blocks = self.turns.setdefault(turn, {})
            kind, text, _ = blocks.get(block, (str(event.data.get("type")), "", False))
            if event.name == "block.started":
                assert block not in blocks
            elif event.name == "block.delta":
                assert block in blocks
            elif block not in blocks:
                inside = {k: v for k, v in event.data.items() if k not in ("turn", "block")}
                text = str([inside])
            more = str(event.data.get("text", "")) if event.name == "block.delta" else ""
            blocks[block] = (kind, text + more, event.name == "block.done")
        elif event.name == "turn.done":
            assert isinstance(turn, int)
            self.done.add(turn)
        elif event.name == "tool.result":
            assert isinstance(turn, int)
            self.results[turn] = self.results.get(turn, 0) + 1
        elif event.name not in ("run.created", "run.started"):
            self.ended = event.name

    def check(self, content: RunContent) -> None:
        """What was read is what is stored."""
        answers = [m for m in content.messages if m.role == "assistant"]
        assert self.turns == {
            m.turn: {n: (b.TYPE, text_of(b), True) for n, b in enumerate(m.content)}
            for m in answers
            if m.content
        }
        replies = [m for m in content.messages if m.role == "user"]
        assert self.results == {m.turn: len(m.content) for m in replies}
        assert self.done == {m.turn for m in answers}
        assert self.ended == f"run.{content.state}"


def count_to(most: float) -> Iterator[int]:
    """Count from 1 to *most*."""
    for number in count(1):
        if number > most:
            return
        yield number


histories = st.builds(
    History, st.randoms(use_true_random=False), st.sampled_from([0, 0, 0, RESTARTS - 3, RESTARTS])
)


@given(history=histories)
def test_a_reader_cut_off_after_any_event_ends_with_the_stored_text(history: History) -> None:
    """It comes back when the run has ended, wherever it was."""
    history.happen()
    last, whole = history.contents[-1], Reader()
    for content in history.contents:
        whole.read(content)
    whole.check(last)
    for cut in range(whole.taken):
        reader = Reader()
        for content in history.contents:
            reader.read(content, cut - reader.taken)
            if reader.taken == cut:
                break
        reader.read(last)
        reader.check(last)


@given(history=histories, lags=st.lists(st.integers(0, 5), min_size=1), most=st.integers(0, 3))
def test_a_reader_that_changes_replicas_ends_with_the_stored_text(
    history: History, lags: list[int], most: int
) -> None:
    """Some know less of the run than what the reader has seen already; some are slow."""
    history.happen()
    reader = Reader()
    for number in range(len(history.contents)):
        behind = max(number - lags[number % len(lags)], 0)
        reader.read(history.contents[behind], most)
    reader.read(history.contents[-1])
    reader.check(history.contents[-1])


CONTRADICTIONS: dict[str, tuple[Sequence[ProviderEvent], ProviderEvent]] = {
    "text after the end of its block": ([TextDelta(0, "a"), BlockStop(0)], TextDelta(0, "b")),
    "a block before one that was shown": ([TextDelta(1, "a")], TextDelta(0, "b")),
    "a signature that makes a block of nothing": (
        [BlockStart(0, ThinkingBlock("")), BlockStop(0), TextDelta(1, "a")],
        SignatureDelta(0, "sig"),
    ),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_what_contradicts_the_shown_part_is_a_restart(what: str) -> None:
    """A view never takes back what it has shown: it says that another one is needed."""
    before, event = CONTRADICTIONS[what]
    accumulator, view = Accumulator(1), AnswerView()
    for earlier in before:
        accumulator.push(earlier)
        assert view.update(accumulator.started)
    accumulator.push(event)
    assert not view.update(accumulator.started)


def test_what_may_be_cut_is_not_shown_while_it_is_open() -> None:
    """A block too large to be stored whole ends in a notice, and no block is shown after it."""
    accumulator, view = Accumulator(1), AnswerView()
    large: list[ProviderEvent] = [TextDelta(0, "é" * 10_000)] * 60
    for event in (*large, BlockStop(0), TextDelta(1, "more")):
        accumulator.push(event)
        assert view.update(accumulator.started)
    (shown,) = view.blocks
    stored, _ = accumulator.answer().content
    assert text_of(stored).startswith(text_of(shown))
    assert len(text_of(shown)) == 520_000


@pytest.mark.parametrize(
    ("claim_epoch", "turn", "restarts", "is_shown"),
    [
        (2, 1, 0, True),
        (1, 1, 0, False),
        (3, 1, 0, False),
        (2, 2, 0, False),
        (2, 1, RESTARTS - 2, True),
        (2, 1, RESTARTS - 1, False),
    ],
)
def test_only_the_open_answer_of_this_claim_and_turn_is_shown(
    claim_epoch: int, turn: int, restarts: int, *, is_shown: bool
) -> None:
    """Another was left by a process that lost the run; one of the last generation is not shown yet."""
    answer = OpenAnswer(turn, claim_epoch, restarts, (TextBlock("late"),))
    content = RunContent(RunState.RUNNING, 2, (), answer)
    names = [event.name for event in events_after(content, -1)]
    assert ("block.delta" in names) is is_shown
