"""The verdict: whether what is stored and what was really done are two sides of the same runs.

One rule: pure, and strict.  What may happen more than once, a turn driven again before its boundary, is
allowed for exactly; everything else that differs is a violation.

Times are compared by the wall clock, which the workers and Postgres share.  An entry of the journal
counts as of the pass of the event loop it was made in: a process can be frozen in the middle of one,
and only in the next can it know how late it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from uuid import UUID

import attrs

from hango.chaos.faults import BROKEN, Script, Step
from hango.chaos.journal import Entry, What
from hango.domain import (
    ErrorCode,
    Message,
    Run,
    RunState,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.telemetry import names

# Their bodies are in threads, which nobody can stop: one may begin after its run has moved on.
_IN_THREADS = frozenset({"crunch"})
_ONCE = frozenset({"send"})  # the unsafe one


@attrs.frozen
class Account:
    """What is known of one run.

    Attributes:
        messages: its own, oldest first.
        asked: when the model began an answer, by turn.
        bodies: what its tools' bodies wrote, by turn and call.
    """

    run: Run
    script: Script
    messages: Sequence[Message]
    asked: Mapping[int, Sequence[Entry]]
    bodies: Mapping[tuple[int, int], Sequence[Entry]]

    def message(self, turn: int, role: str) -> Message | None:
        """Return its message of that turn and role; None if there is none."""
        found = (m for m in self.messages if (m.turn, m.role, m.partial) == (turn, role, False))
        return next(found, None)

    def bodies_begun(self, turn: int, call: int) -> Sequence[Entry]:
        """Return when the body of a call began."""
        return [entry for entry in self.bodies.get((turn, call), ()) if entry.what is What.BEGAN]

    @property
    def redriven(self) -> int:
        """Turns that were driven more than once."""
        begun = Counter(turn for turn, call in self.bodies if len(self.bodies_begun(turn, call)) > 1)
        return len({turn for turn, asked in self.asked.items() if len(asked) > 1} | set(begun))

    @property
    def deeds(self) -> Sequence[Entry]:
        """Return everything that was done for it, of which the time is certain."""
        steps = dict(_steps(self.script))
        bodies = (
            entry
            for place, entries in self.bodies.items()
            for entry in entries
            if entry.what is What.BEGAN and steps[place].tool not in _IN_THREADS
        )
        return [*(entry for asked in self.asked.values() for entry in asked), *bodies]


def open_accounts(
    runs: Sequence[Run], messages: Sequence[Message], journal: Sequence[Entry]
) -> Sequence[Account]:
    """Sort what is known by run."""
    told: dict[UUID | None, list[Message]] = defaultdict(list)
    for message in messages:
        told[message.run_id].append(message)
    asked: dict[str, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    bodies: dict[str, dict[tuple[int, int], list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in journal:
        if entry.what is What.ASKED:
            asked[entry.subject][entry.turn].append(entry)
        elif entry.what in (What.BEGAN, What.DONE):
            bodies[entry.subject][entry.turn, entry.call].append(entry)
    accounts = []
    for run in runs:
        script = Script.parse("".join(b.text for b in run.input if isinstance(b, TextBlock)))
        accounts.append(Account(run, script, told[run.id], asked[script.tag], bodies[str(run.id)]))
    return accounts


def judge(accounts: Sequence[Account]) -> Sequence[str]:
    """Return every violation, a line each, of the runs and of each session's line."""
    found = [
        f"run {account.run.id} ({account.script.tag}): {what}"
        for account in accounts
        for check in (_ended, _answered, _bought, _driven, _kept_to_itself)
        for what in check(account)
    ]
    return [*found, *_lines(accounts)]


def counted(journal: Sequence[Entry], counter: str) -> int:
    """Return by how much a counter was raised, over all processes."""
    return sum(
        int(entry.mark) for entry in journal if (entry.what, entry.subject) == (What.COUNTED, counter)
    )


def reclaims(journal: Sequence[Entry]) -> int:
    """Return how many lapsed leases were taken back."""
    return counted(journal, names.RUN_RECLAIMED)


def rejected_writes(journal: Sequence[Entry]) -> int:
    """Return how many writes found the fence closed."""
    return counted(journal, names.FENCE_REJECTED)


# --- one run --------------------------------------------------------------------------------


def _ended(account: Account) -> Iterator[str]:
    """Say whether it ended as its script has it, or as it was told to."""
    run, breaks = account.run, account.script.ending == BROKEN
    state = RunState.FAILED if breaks else RunState.SUCCEEDED
    if not run.state.terminal:
        yield f"it has not ended: it is {run.state}"
    elif run.state is RunState.CANCELLED and run.cancel_requested_at is not None:
        return
    elif run.state is not state:
        yield f"it is {run.state} ({run.error}), and should be {state}"
    elif breaks and (run.error is None or run.error.code is not ErrorCode.PROVIDER_STREAM_BROKEN):
        yield f"it failed with {run.error}"
    elif run.iterations != len(account.script.turns) + (not breaks):
        yield f"it ended after {run.iterations} turns"


def _answered(account: Account) -> Iterator[str]:
    """Say whether the stored turns are those of the script, and their results what bodies came to."""
    for turn, wanted in enumerate(account.script.turns, start=1):
        answer, reply = account.message(turn, "assistant"), account.message(turn, "user")
        if answer and [_step(block) for block in answer.content] != list(wanted.steps):
            yield f"the answer of turn {turn} is not the model's"
        if reply is None or reply.synthetic:
            continue
        if len(reply.content) != len(wanted.steps):
            yield f"turn {turn} has {len(reply.content)} results"
        for call, (block, step) in enumerate(zip(reply.content, wanted.steps, strict=False)):
            if not _comes_of(account, block, step, account.bodies.get((turn, call), ())):
                yield f"the result of {step.tool}, call {call} of turn {turn}, is of no body: {block}"


def _comes_of(account: Account, block: object, step: Step, entries: Sequence[Entry]) -> bool:
    """Tell whether a result is what a body came to; or that it is not known, when that may be."""
    if not isinstance(block, ToolResultBlock):
        return False
    if block.is_error and step.tool in _ONCE:
        return account.run.claim_epoch > 1  # an execution recorded it as begun, and was cut short
    if block.is_error or step.tool == "fail":
        return block.is_error and step.tool == "fail" and bool(entries)
    return block.content in {entry.mark for entry in entries if entry.what is What.DONE}


def _step(block: object) -> Step | None:
    match block:
        case ToolUseBlock(name=name, input={"milliseconds": int(milliseconds)}):
            return Step(name, milliseconds)
    return None


def _bought(account: Account) -> Iterator[str]:
    """Say whether an answer was asked for that was stored already, or more often than it was lost."""
    for turn, asked in account.asked.items():
        answer = account.message(turn, "assistant")
        late = [entry for entry in asked if answer and entry.since > answer.created_at.timestamp()]
        if late:
            yield f"turn {turn} was asked for again after its answer had been stored"
    calls = sum(map(len, account.asked.values()))
    stored = sum(m.role == "assistant" and not m.synthetic for m in account.messages)
    # each execution may lose the answer it is waiting for when it is cut short; the last is, when the
    # run does not succeed
    lost = account.run.claim_epoch - (account.run.state is RunState.SUCCEEDED)
    if calls > stored + lost:
        yield f"{calls} answers were asked for; {stored} are stored, at most {lost} can have been lost"


def _driven(account: Account) -> Iterator[str]:
    """Say whether a body began after its turn's boundary, or an unsafe one twice."""
    for (turn, call), step in _steps(account.script):
        began = account.bodies_begun(turn, call)
        if step.tool in _ONCE and len(began) > 1:
            yield f"{step.tool}, call {call} of turn {turn}, is unsafe and began {len(began)} times"
        reply = account.message(turn, "user")
        if reply is None or step.tool in _IN_THREADS:
            continue
        if any(entry.since > reply.created_at.timestamp() for entry in began):
            yield f"{step.tool}, call {call} of turn {turn}, began after the turn's boundary"


def _kept_to_itself(account: Account) -> Iterator[str]:
    """Say whether something was done for it after its end."""
    end = account.run.finished_at
    if end is not None and any(entry.since > end.timestamp() for entry in account.deeds):
        yield "something was done for it after its end"


def _steps(script: Script) -> Iterator[tuple[tuple[int, int], Step]]:
    for turn, wanted in enumerate(script.turns, start=1):
        for call, step in enumerate(wanted.steps):
            yield (turn, call), step


# --- one session ----------------------------------------------------------------------------


def _lines(accounts: Sequence[Account]) -> Iterator[str]:
    """Say whether a run was begun before the one ahead of it in its line had ended."""
    lines: dict[UUID, list[Account]] = defaultdict(list)
    for account in accounts:
        if account.deeds:
            lines[account.run.session_id].append(account)
    for line in lines.values():
        line.sort(key=lambda account: account.run.session_seq)
        for ahead, behind in pairwise(line):
            begun, end = min(entry.at for entry in behind.deeds), ahead.run.finished_at
            if end is None or begun < end.timestamp():
                yield (
                    f"session {ahead.run.session_id}: run {behind.run.id} was begun before "
                    f"{ahead.run.id}, which is ahead of it, had ended"
                )
