"""The checks of `hango chaos` accept what may happen, and find what may not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import attrs
import pytest

from hango.chaos.checks import check_runs, collect_records, reclaims, rejected_writes
from hango.chaos.journal import Entry, EntryKind, Journal
from hango.chaos.scripts import Script
from hango.domain import (
    Block,
    ErrorCode,
    Message,
    Run,
    RunError,
    RunState,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

from support.chaos_runs import SESSION, at, run_of


@attrs.define
class Story:
    """Two runs of a session: the first with a turn of two tools, the second with an answer only.

    The first is requested at 1, answered at 2, its tools begin at 3 and return at 4, the boundary is at
    5; it is requested again at 6 and ends at 7.  The second is requested at 11 and ends at 12.
    """

    runs: list[Run]
    messages: list[Message]
    journal: list[Entry]

    @property
    def violations(self) -> Sequence[str]:
        """What the checks find."""
        return check_runs(collect_records(self.runs, self.messages, self.journal))

    def asked(self, tag: str, turn: int, second: float) -> None:
        """Let the model be called."""
        self.journal.append(Entry(EntryKind.ASKED, tag, turn, since=second, at=second))

    def tool(self, kind: EntryKind, call: int, second: float, mark: str = "") -> None:
        """Let a tool of the first run begin or return."""
        entry = Entry(kind, str(self.runs[0].id), 1, call, since=second, at=second, mark=mark)
        self.journal.append(entry)

    def change(self, number: int, **fields: object) -> None:
        """Change a run."""
        self.runs[number] = attrs.evolve(self.runs[number], **fields)  # type: ignore[arg-type]  # any

    def say(self, place: int, *content: Block) -> None:
        """Change a message."""
        self.messages[place] = attrs.evolve(self.messages[place], content=content)


def message(run: Run, seq: int, turn: int, role: str, second: float, *content: Block) -> Message:
    """Return a stored message."""
    return Message(
        id=UUID(int=seq),
        session_id=SESSION,
        seq=seq,
        role="user" if role == "user" else "assistant",
        content=content,
        run_id=run.id,
        turn=turn,
        stop_reason=None,
        usage=None,
        partial=False,
        synthetic=False,
        created_at=at(second),
    )


CALLS = (
    ToolUseBlock("c0", "send", {"milliseconds": 0}),
    ToolUseBlock("c1", "look", {"milliseconds": 5}),
)
RESULTS = (ToolResultBlock("c0", "mark-0"), ToolResultBlock("c1", "mark-1"))


@pytest.fixture
def story() -> Story:
    """Have runs as they should be."""
    one, two = run_of(1, "a 0 send:0+look:5 done", 2, 7), run_of(2, "b 0 done", 1, 12)
    told = Story(
        [one, two],
        [
            message(one, 1, 0, "user", 2, *one.input),
            message(one, 2, 1, "assistant", 2, *CALLS),
            message(one, 3, 1, "user", 5, *RESULTS),
            message(one, 4, 2, "assistant", 7, TextBlock("a is done")),
            message(two, 5, 0, "user", 12, *two.input),
            message(two, 6, 1, "assistant", 12, TextBlock("b is done")),
        ],
        [],
    )
    told.asked("a", 1, 1)
    for call in (0, 1):
        told.tool(EntryKind.BEGAN, call, 3)
        told.tool(EntryKind.DONE, call, 4, f"mark-{call}")
    told.asked("a", 2, 6)
    told.asked("b", 1, 11)
    return told


def test_what_should_be_is_accepted(story: Story) -> None:
    """Everything happened once, in its order."""
    assert story.violations == []


# --- what may happen ------------------------------------------------------------------------


def _replayed(story: Story) -> None:
    story.change(0, claim_epoch=2)
    story.asked("a", 1, 1.5)  # the first answer was lost
    story.tool(EntryKind.BEGAN, 1, 3.5)  # cut short once, and replayed


def _late_but_unaware(story: Story) -> None:
    """Frozen between two steps of one pass of the loop, the tool began when the turn was over."""
    story.journal.append(Entry(EntryKind.BEGAN, str(story.runs[0].id), 1, 1, since=4.5, at=50))


def _late_in_a_thread(story: Story) -> None:
    story.change(0, input=(TextBlock("a 0 send:0+crunch:5 done"),))
    story.say(1, CALLS[0], attrs.evolve(CALLS[1], name="crunch"))
    story.tool(EntryKind.BEGAN, 1, 50)


def _cancelled(story: Story) -> None:
    story.change(0, state=RunState.CANCELLED, cancel_requested_at=at(6), iterations=1, resume_turn=1)
    del story.messages[3]


def _told_what_is_not_known(story: Story) -> None:
    """The worker was killed just before the unsafe tool began: an error says so."""
    story.change(0, claim_epoch=2)
    del story.journal[1:3]
    story.say(2, ToolResultBlock("c0", "it may have taken effect", is_error=True), RESULTS[1])


def _broken(story: Story) -> None:
    error = RunError(ErrorCode.PROVIDER_STREAM_BROKEN, "x")
    story.change(1, input=(TextBlock("b 0 broken"),), state=RunState.FAILED, error=error, iterations=0)


@pytest.mark.parametrize(
    "happens",
    [_replayed, _late_but_unaware, _late_in_a_thread, _cancelled, _told_what_is_not_known, _broken],
)
def test_what_may_happen_is_accepted(story: Story, happens: Callable[[Story], None]) -> None:
    """A turn is replayed before its boundary; a process is late without being able to know it."""
    happens(story)
    assert story.violations == []


def test_replayed_turns_are_counted(story: Story) -> None:
    """Once each, whether the model or a tool was asked again, or both."""
    records = collect_records(story.runs, story.messages, story.journal)
    assert [record.replayed_turns for record in records] == [0, 0]
    _replayed(story)
    story.asked("b", 1, 11)
    records = collect_records(story.runs, story.messages, story.journal)
    assert [record.replayed_turns for record in records] == [1, 1]


# --- what may not ---------------------------------------------------------------------------


def _unfinished(story: Story) -> None:
    story.change(1, state=RunState.QUEUED, finished_at=None)


def _failed(story: Story) -> None:
    story.change(1, state=RunState.FAILED, error=RunError(ErrorCode.INTERNAL, "x"))


def _cancelled_by_nobody(story: Story) -> None:
    story.change(1, state=RunState.CANCELLED)


def _succeeded_although_broken(story: Story) -> None:
    story.change(1, input=(TextBlock("b 0 broken"),))


def _failed_otherwise(story: Story) -> None:
    _broken(story)
    story.change(1, error=RunError(ErrorCode.INTERNAL, "x"))


def _a_turn_too_few(story: Story) -> None:
    story.change(0, iterations=1, resume_turn=1)


def _another_answer(story: Story) -> None:
    story.say(1, CALLS[1], CALLS[0])


def _a_result_of_nothing(story: Story) -> None:
    story.say(2, RESULTS[0], ToolResultBlock("c1", "mark-7"))


def _a_result_too_few(story: Story) -> None:
    story.say(2, RESULTS[0])


def _a_body_that_never_ended(story: Story) -> None:
    del story.journal[4]


def _an_error_of_nothing(story: Story) -> None:
    story.say(2, RESULTS[0], ToolResultBlock("c1", "mark-1", is_error=True))


def _not_known_although_nobody_was_killed(story: Story) -> None:
    story.say(2, ToolResultBlock("c0", "it may have taken effect", is_error=True), RESULTS[1])


def _requested_twice(story: Story) -> None:
    story.change(0, claim_epoch=5)
    story.asked("a", 1, 2.5)


def _asked_too_often(story: Story) -> None:
    story.asked("a", 2, 6.5)


def _began_after_the_boundary(story: Story) -> None:
    story.tool(EntryKind.BEGAN, 1, 5.5)


def _unsafe_twice(story: Story) -> None:
    story.tool(EntryKind.BEGAN, 0, 3.5)


def _after_the_end(story: Story) -> None:
    story.change(1, claim_epoch=5)
    story.messages.pop()
    story.asked("b", 1, 13)


def _before_its_turn(story: Story) -> None:
    story.change(1, claim_epoch=5)
    story.asked("b", 1, 6.5)


WRONG = [
    (_unfinished, "it has not ended"),
    (_failed, "and should be succeeded"),
    (_cancelled_by_nobody, "and should be succeeded"),
    (_succeeded_although_broken, "and should be failed"),
    (_failed_otherwise, "it failed with"),
    (_a_turn_too_few, "it ended after 1 turns"),
    (_another_answer, "the answer of turn 1 is not the model's"),
    (_a_result_of_nothing, "the result of look, call 1 of turn 1 is of no tool"),
    (_a_result_too_few, "turn 1 has 1 results"),
    (_a_body_that_never_ended, "the result of look, call 1 of turn 1 is of no tool"),
    (_an_error_of_nothing, "the result of look, call 1 of turn 1 is of no tool"),
    (
        _not_known_although_nobody_was_killed,
        "the result of send, call 0 of turn 1 is of no tool",
    ),
    (_requested_twice, "turn 1 was requested again"),
    (_asked_too_often, "3 answers were requested; 2 are stored, at most 0"),
    (_began_after_the_boundary, "look, call 1 of turn 1, began after the turn's boundary"),
    (_unsafe_twice, "send, call 0 of turn 1, is unsafe and began 2 times"),
    (_after_the_end, "something was done for it after its end"),
    (_before_its_turn, "began before"),
]


@pytest.mark.parametrize(("happens", "what"), WRONG)
def test_what_may_not_happen_is_found(
    story: Story, happens: Callable[[Story], None], what: str
) -> None:
    """Each wrong is told in words, and nothing else is."""
    happens(story)
    assert [line for line in story.violations if what not in line] == []
    assert story.violations


# --- the journal ----------------------------------------------------------------------------


def test_counters_are_the_sum_over_all_processes(tmp_path: Path) -> None:
    """What each wrote is read back, in its order."""
    one, other = Journal(tmp_path / "journal"), Journal(tmp_path / "journal")
    assert one.read() == []
    entries = [
        Entry(EntryKind.COUNTED, "hango.run.reclaimed", mark="2"),
        Entry(EntryKind.COUNTED, "hango.fence.rejected", mark="1"),
        Entry(EntryKind.COUNTED, "hango.run.reclaimed", mark="1"),
        Entry(EntryKind.ASKED, "a", 1, since=0.5, at=1.5),
    ]
    for number, entry in enumerate(entries):
        (one, other)[number % 2].write(entry)
    assert one.read() == entries
    assert (reclaims(entries), rejected_writes(entries)) == (3, 1)


def test_scripts_are_read_off_the_runs(story: Story) -> None:
    """Nothing has to be remembered of what was asked for."""
    records = collect_records(story.runs, story.messages, story.journal)
    assert records[0].script == Script.parse("a 0 send:0+look:5 done")
