"""The lines of the table: what each measures, and in which runs of the bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import attrs
import trio

from bench import engine, floor
from bench.samples import Sample

TURNS = 5


@attrs.frozen
class Line:
    """One line.

    Attributes:
        measure: called in a process of its own with the URL of a database of its own.
        quick: a shorter form for `make bench-quick`; None leaves the line out there.
        beside: the name of the line that its ratio is against; empty for none.
    """

    measure: Callable[[str], Sample]
    quick: Callable[[str], Sample] | None = None
    beside: str = ""


def _engine(dsn: str, *, sessions: int, seconds: float, turns: int = TURNS, history: int = 0) -> Sample:
    return trio.run(
        partial(engine.engine, dsn, sessions=sessions, turns=turns, seconds=seconds, history=history)
    )


def _loop(_: str, *, history: int, sessions: int) -> Sample:
    return trio.run(partial(engine.loop_in_memory, turns=TURNS, history=history, sessions=sessions))


def _pgbench(clients: int, group: int = 1) -> Line:
    run = partial(floor.pgbench, clients=clients, group=group, turns=TURNS)
    one = "pgbench, 1 connection" if clients == 1 else "pgbench, 50 connections"
    return Line(partial(run, seconds=4), partial(run, seconds=1), one)


def _bare(clients: int) -> Line:
    run = partial(floor.bare_asyncpg, clients=clients, turns=TURNS)
    one = "pgbench, 1 connection" if clients == 1 else "pgbench, 50 connections"
    return Line(partial(run, seconds=4), partial(run, seconds=1), one)


def _loop_line(history: int, sessions: int) -> Line:
    run = partial(_loop, history=history)
    return Line(partial(run, sessions=sessions), partial(run, sessions=sessions // 4), "loop in memory")


ALONE, FIFTY = "engine (create → settle), alone", "engine (create → settle)"
LINES: Mapping[str, Line] = {
    "pgbench, 1 connection": _pgbench(1),
    "pgbench, 20 connections": _pgbench(20),
    "pgbench, 50 connections": _pgbench(50),
    "pgbench, group form, 8 x 16 sessions": _pgbench(8, 16),
    "asyncpg, 1 connection": _bare(1),
    "asyncpg, 20 connections": _bare(20),
    ALONE: Line(
        partial(_engine, sessions=1, seconds=4),
        partial(_engine, sessions=1, seconds=1),
        "pgbench, 1 connection",
    ),
    FIFTY: Line(
        partial(_engine, sessions=50, seconds=6),
        partial(_engine, sessions=50, seconds=2),
        "pgbench, 50 connections",
    ),
    "engine, 20 turns a run": Line(partial(_engine, sessions=50, seconds=6, turns=20), None, FIFTY),
    "engine, 50 turns a run": Line(partial(_engine, sessions=50, seconds=6, turns=50), None, FIFTY),
    "engine alone, after 10 messages": Line(
        partial(_engine, sessions=1, seconds=4, history=10), None, ALONE
    ),
    "engine alone, after 1,000 messages": Line(
        partial(_engine, sessions=1, seconds=4, history=1000),
        partial(_engine, sessions=1, seconds=1, history=1000),
        ALONE,
    ),
    "engine alone, after 10,000 messages": Line(
        partial(_engine, sessions=1, seconds=4, history=10_000), None, ALONE
    ),
    "loop in memory": _loop_line(0, 200),
    "loop in memory, after 1,000 messages": _loop_line(1000, 40),
    "loop in memory, after 10,000 messages": _loop_line(10_000, 8),
}
