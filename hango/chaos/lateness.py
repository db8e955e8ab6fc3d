"""Whether runs were late: a fault that did not hit a run must not delay it by more than a lease.

Rule: pure.  Time in which no worker could have done better does not count: Postgres was away or had no
room, no worker lived, or the machine was too busy to keep time.  Such a window ends a lease after its
cause, when all processes have recovered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from uuid import UUID

import attrs

from hango.chaos.scripts import Script
from hango.domain import Run

_OVERHEAD = 0.1  # seconds that a turn takes beside its model and its tools


@attrs.frozen
class Window:
    """A stretch of time (wall clock, seconds)."""

    begin: float
    end: float


def find_late(
    runs: Sequence[tuple[Run, Script]], excused: Sequence[Window], lease: float
) -> Iterator[str]:
    """Return every run that was late, a line each.

    Args:
        runs: that have ended, with their scripts.
        excused: windows whose time does not count, in any order, perhaps overlapping.
        lease: seconds; how late a run may be.
    """
    windows = _joined(Window(window.begin, window.end + lease) for window in excused)
    sessions: dict[UUID, list[tuple[Run, Script]]] = defaultdict(list)
    for run, script in runs:
        sessions[run.session_id].append((run, script))
    for in_order in sessions.values():
        in_order.sort(key=lambda each: each[0].session_seq)
        ready = 0.0
        for run, script in in_order:
            yield from _check(run, script, ready, windows, lease)
            # one that was cancelled in the queue ended before those that it waited for
            ready = max(ready, _seconds(run.finished_at) or 0.0)


def _check(
    run: Run, script: Script, ready: float, windows: Sequence[Window], lease: float
) -> Iterator[str]:
    started, finished = _seconds(run.started_at), _seconds(run.finished_at)
    if started is None or finished is None:
        return  # cancelled while it was queued, or not ended: another check's violation
    waiting = Window(max(run.created_at.timestamp(), ready), started)
    if (late := _counted(waiting, windows)) > lease:
        yield f"run {run.id} ({script.tag}): it began {late:.1f} s late"
    late = _counted(Window(started, finished), windows) - _work(script)
    if run.claim_epoch == 1 and late > lease:
        yield f"run {run.id} ({script.tag}): it ended {late:.1f} s late, although no fault hit it"


def _work(script: Script) -> float:
    """Return the seconds that the model and the tools of a run take, as its script says."""
    tools = sum(max(step.milliseconds for step in turn.steps) for turn in script.turns) / 1000
    calls = [*(len(turn.steps) for turn in script.turns), 1]
    return tools + sum(script.answer_seconds(count) + _OVERHEAD for count in calls)


def _counted(stretch: Window, windows: Sequence[Window]) -> float:
    """Return the seconds of *stretch* that are in none of *windows*."""
    excused = (min(stretch.end, window.end) - max(stretch.begin, window.begin) for window in windows)
    return stretch.end - stretch.begin - sum(seconds for seconds in excused if seconds > 0)


def _joined(windows: Iterable[Window]) -> Sequence[Window]:
    """Return windows that do not overlap and cover the same time."""
    joined: list[Window] = []
    for window in sorted(windows, key=lambda window: window.begin):
        if joined and window.begin <= joined[-1].end:
            joined[-1] = Window(joined[-1].begin, max(joined[-1].end, window.end))
        else:
            joined.append(window)
    return joined


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
