"""The checks after a scenario: what is stored against what the journal says was really done.

Rule: pure, and strict.  A turn that is replayed before its boundary is allowed for exactly; every other
difference is a violation.

Times are compared by the wall clock, which the workers and Postgres share.  A journal entry counts as
made when its pass of the event loop began: a process can be frozen within a pass, and only in the next
can it know how late it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from uuid import UUID

import attrs

from hango.chaos.journal import Entry, EntryKind
from hango.chaos.scripts import BROKEN, Script, Step
from hango.domain import (
    ErrorCode,
    Message,
    Run,
    RunState,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    defaults,
)
from hango.telemetry import names

# Their functions run in threads, which cannot be stopped: one may begin after its run has moved on.
_IN_THREADS = frozenset({"crunch"})
_ONCE = frozenset({"send"})  # the unsafe one


@attrs.frozen
class RunRecord:
    """What is known of one run.

    Attributes:
        messages: its own, oldest first.
        asked: when the model began an answer, by turn.
        calls: what its tool functions wrote, by turn and place in the turn.
    """

    run: Run
    script: Script
    messages: Sequence[Message]
    asked: Mapping[int, Sequence[Entry]]
    calls: Mapping[tuple[int, int], Sequence[Entry]]

    def message(self, turn: int, role: str) -> Message | None:
        """Return its message of that turn and role; None if there is none."""
        found = (m for m in self.messages if (m.turn, m.role, m.partial) == (turn, role, False))
        return next(found, None)

    def starts_of(self, turn: int, call: int) -> Sequence[Entry]:
        """Return when the tool function of a call began."""
        return [entry for entry in self.calls.get((turn, call), ()) if entry.kind is EntryKind.BEGAN]

    @property
    def replayed_turns(self) -> int:
        """How many turns were executed more than once."""
        begun = Counter(turn for turn, call in self.calls if len(self.starts_of(turn, call)) > 1)
        return len({turn for turn, asked in self.asked.items() if len(asked) > 1} | set(begun))

    @property
    def actions(self) -> Sequence[Entry]:
        """Everything that was done for it and of which the time is certain."""
        steps = dict(_steps(self.script))
        starts = (
            entry
            for place, entries in self.calls.items()
            for entry in entries
            if entry.kind is EntryKind.BEGAN and steps[place].tool not in _IN_THREADS
        )
        return [*(entry for asked in self.asked.values() for entry in asked), *starts]


def collect_records(
    runs: Sequence[Run], messages: Sequence[Message], journal: Sequence[Entry]
) -> Sequence[RunRecord]:
    """Sort what is known by run."""
    stored: dict[UUID | None, list[Message]] = defaultdict(list)
    for message in messages:
        stored[message.run_id].append(message)
    asked: dict[str, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    calls: dict[str, dict[tuple[int, int], list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in journal:
        if entry.kind is EntryKind.ASKED:
            asked[entry.subject][entry.turn].append(entry)
        elif entry.kind in (EntryKind.BEGAN, EntryKind.DONE):
            calls[entry.subject][entry.turn, entry.call].append(entry)
    records = []
    for run in runs:
        script = Script.parse("".join(b.text for b in run.input if isinstance(b, TextBlock)))
        records.append(RunRecord(run, script, stored[run.id], asked[script.tag], calls[str(run.id)]))
    return records


def check_runs(records: Sequence[RunRecord]) -> Sequence[str]:
    """Return every violation of the runs and of their order in each session, a line each."""
    found = [
        f"run {record.run.id} ({record.script.tag}): {what}"
        for record in records
        for check in (_check_end, _check_turns, _check_requests, _check_starts, _check_after_end)
        for what in check(record)
    ]
    return [*found, *_check_order(records)]


def total_of(journal: Sequence[Entry], counter: str) -> int:
    """Return by how much a counter was raised, by all processes together."""
    return sum(
        int(entry.mark)
        for entry in journal
        if (entry.kind, entry.subject) == (EntryKind.COUNTED, counter)
    )


def reclaims(journal: Sequence[Entry]) -> int:
    """Return how many lapsed leases were taken back."""
    return total_of(journal, names.RUN_RECLAIMED)


def rejected_writes(journal: Sequence[Entry]) -> int:
    """Return how many writes found the fence closed."""
    return total_of(journal, names.FENCE_REJECTED)


# --- one run --------------------------------------------------------------------------------


def _check_end(record: RunRecord) -> Iterator[str]:
    """Check that it ended as its script says, or was cancelled by its client."""
    run, breaks = record.run, record.script.ending == BROKEN
    state = RunState.FAILED if breaks else RunState.SUCCEEDED
    if not run.state.terminal:
        yield f"it has not ended: it is {run.state}"
    elif run.state is RunState.CANCELLED and run.cancel_requested_at is not None:
        return
    elif run.state is not state:
        yield f"it is {run.state} ({run.error}), and should be {state}"
    elif breaks and (run.error is None or run.error.code is not ErrorCode.PROVIDER_STREAM_BROKEN):
        yield f"it failed with {run.error}"
    elif run.iterations != len(record.script.turns) + (not breaks):
        yield f"it ended after {run.iterations} turns"


def _check_turns(record: RunRecord) -> Iterator[str]:
    """Check that the stored turns are those of the script, and their results what tools returned."""
    for turn, wanted in enumerate(record.script.turns, start=1):
        answer, reply = record.message(turn, "assistant"), record.message(turn, "user")
        if answer and [_step(block) for block in answer.content] != list(wanted.steps):
            yield f"the answer of turn {turn} is not the model's"
        if reply is None or reply.synthetic:
            continue
        if len(reply.content) != len(wanted.steps):
            yield f"turn {turn} has {len(reply.content)} results"
        for call, (block, step) in enumerate(zip(reply.content, wanted.steps, strict=False)):
            if not _was_returned(record, block, step, record.calls.get((turn, call), ())):
                yield f"the result of {step.tool}, call {call} of turn {turn} is of no tool: {block}"


def _was_returned(record: RunRecord, block: object, step: Step, entries: Sequence[Entry]) -> bool:
    """Whether a result is what a tool returned; or an unknown one, where that may be."""
    if not isinstance(block, ToolResultBlock):
        return False
    if block.is_error and step.tool in _ONCE:
        return record.run.claim_epoch > 1  # an execution recorded it as begun, and was cut short
    if block.is_error or step.tool == "fail":
        return block.is_error and step.tool == "fail" and bool(entries)
    return block.content in {entry.mark for entry in entries if entry.kind is EntryKind.DONE}


def _step(block: object) -> Step | None:
    match block:
        case ToolUseBlock(name=name, input={"milliseconds": int(milliseconds)}):
            return Step(name, milliseconds)
    return None


def _check_requests(record: RunRecord) -> Iterator[str]:
    """Check that no stored answer was requested again, and none more often than it was lost."""
    for turn, asked in record.asked.items():
        answer = record.message(turn, "assistant")
        late = [entry for entry in asked if answer and entry.since > answer.created_at.timestamp()]
        if late:
            yield f"turn {turn} was requested again after its answer had been stored"
    calls = sum(map(len, record.asked.values()))
    stored = sum(m.role == "assistant" and not m.synthetic for m in record.messages)
    # each execution may lose the answer it is waiting for when it is cut short, as the last one does
    # when the run does not succeed; and it repeats the request for an answer that breaks off
    repeats = defaults.STREAM_RETRIES if record.script.ending == BROKEN else 0
    lost = record.run.claim_epoch * (1 + repeats) - (record.run.state is RunState.SUCCEEDED)
    if calls > stored + lost:
        yield f"{calls} answers were requested; {stored} are stored, at most {lost} can have been lost"


def _check_starts(record: RunRecord) -> Iterator[str]:
    """Check that no tool began after its turn's boundary, and no unsafe one twice."""
    for (turn, call), step in _steps(record.script):
        began = record.starts_of(turn, call)
        if step.tool in _ONCE and len(began) > 1:
            yield f"{step.tool}, call {call} of turn {turn}, is unsafe and began {len(began)} times"
        reply = record.message(turn, "user")
        if reply is None or step.tool in _IN_THREADS:
            continue
        if any(entry.since > reply.created_at.timestamp() for entry in began):
            yield f"{step.tool}, call {call} of turn {turn}, began after the turn's boundary"


def _check_after_end(record: RunRecord) -> Iterator[str]:
    """Check that nothing was done for it after its end."""
    end = record.run.finished_at
    if end is not None and any(entry.since > end.timestamp() for entry in record.actions):
        yield "something was done for it after its end"


def _steps(script: Script) -> Iterator[tuple[tuple[int, int], Step]]:
    for turn, wanted in enumerate(script.turns, start=1):
        for call, step in enumerate(wanted.steps):
            yield (turn, call), step


# --- one session ----------------------------------------------------------------------------


def _check_order(records: Sequence[RunRecord]) -> Iterator[str]:
    """Check that each run of a session began after the one before it had ended."""
    sessions: dict[UUID, list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.actions:
            sessions[record.run.session_id].append(record)
    for in_order in sessions.values():
        in_order.sort(key=lambda record: record.run.session_seq)
        for first, second in pairwise(in_order):
            begun, end = min(entry.at for entry in second.actions), first.run.finished_at
            if end is None or begun < end.timestamp():
                yield (
                    f"session {first.run.session_id}: run {second.run.id} began before "
                    f"{first.run.id}, which comes first, had ended"
                )
