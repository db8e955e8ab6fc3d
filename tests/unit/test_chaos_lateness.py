"""Which runs of a chaos run were late, and what excuses them."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import attrs
import pytest

from hango.chaos.lateness import Window, find_late
from hango.chaos.scripts import Script
from hango.domain import Run

from support.chaos_runs import run_of

LEASE = 3.0
SCRIPT = Script.parse("a 400 look:400 done")  # works for 1.6 seconds


def run(number: int, created: float, started: float | None, finished: float, **fields: object) -> Run:
    """Return a run with these times (seconds)."""
    times = {"created_at": created, "started_at": started, "finished_at": finished}
    moments = {
        name: None if second is None else datetime.fromtimestamp(second, UTC)
        for name, second in times.items()
    }
    return attrs.evolve(run_of(number, SCRIPT.text, 2, finished), **moments, **fields)  # type: ignore[arg-type]  # any


ON_TIME = run(1, 10, 12, 15)
AFTER_IT = run(2, 11, 17, 20)


@pytest.mark.parametrize(
    ("runs", "excused", "found"),
    [
        ([ON_TIME, AFTER_IT], [], []),
        ([run(1, 10, 14, 17)], [], ["it began 4.0 s late"]),
        ([ON_TIME, run(2, 11, 19, 22)], [], ["it began 4.0 s late"]),
        ([run(1, 10, 12, 18)], [], ["it ended 4.4 s late"]),
        # another execution did part of it: a fault hit it
        ([run(1, 10, 12, 60, claim_epoch=2)], [], []),
        # cancelled while it was queued, which is long before the one ahead of it ends
        ([ON_TIME, run(2, 11, None, 12), run(3, 12, 17, 20)], [], []),
        # the lease after a window is excused, too
        ([run(1, 10, 17, 20)], [Window(10, 11)], []),
        ([run(1, 10, 17.5, 20)], [Window(10, 11)], ["it began 3.5 s late"]),
        ([run(1, 10, 12, 24)], [Window(13, 15)], ["it ended 5.4 s late"]),
        # windows may overlap, and are counted once
        ([run(1, 10, 18, 21)], [Window(10, 11), Window(10.5, 11.5), Window(0, 1)], ["it began 3.5"]),
        ([run(1, 10, 17.5, 21)], [Window(10, 11), Window(10.5, 11.5), Window(0, 1)], []),
    ],
)
def test_a_run_is_late_when_nothing_excuses_it(
    runs: list[Run], excused: list[Window], found: list[str]
) -> None:
    """It began later than a lease after it could, or took that much longer than its work."""
    lines = list(find_late([(each, SCRIPT) for each in runs], excused, LEASE))
    assert len(lines) == len(found)
    assert all(what in line for what, line in zip(found, lines, strict=True))


def test_each_session_has_an_order_of_its_own() -> None:
    """A run waits for those of its own session only."""
    other = attrs.evolve(AFTER_IT, session_id=UUID(int=9))
    (line,) = find_late([(ON_TIME, SCRIPT), (other, SCRIPT)], [], LEASE)
    assert "it began 6.0 s late" in line
