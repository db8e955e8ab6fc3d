"""Clocks that are wrong, and rows whose times say nothing about their order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hango
from hango.domain import Role, TextBlock
from hango.testing import FakeProvider, text
from hango.testing.plugin import SeededTenant, sql

from support.workers import started_worker, until

ROOMS = ("store", "actors", "agent", "web")
# A conversation in memory says when its messages were made, as rows do; nothing is decided by it.
TOLD_ONLY = {"memory.py"}
WALL = {"now", "utcnow", "today", "time", "time_ns", "ctime", "localtime", "gmtime"}
MODULES = {"datetime", "date", "time"}


def wall_clocks(file: Path) -> Iterator[str]:
    """Yield the places where *file* asks this machine what time it is."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked, of = node.func.attr, node.func.value
            names = {of.id} if isinstance(of, ast.Name) else {getattr(of, "attr", "")}
            if asked in WALL and names & MODULES:
                yield f"{file.name}:{node.lineno}"


@pytest.mark.rule(4)
@pytest.mark.parametrize("room", ROOMS)
def test_no_lease_order_or_deadline_depends_on_a_machine_s_clock(room: str) -> None:
    """D04: the database says what time it is, and what passes is trio's time: shifts change nothing."""
    files = set((Path(hango.__file__).parent / room).rglob("*.py"))
    files = {file for file in files if file.name not in TOLD_ONLY}
    assert files
    assert [place for file in files for place in wall_clocks(file)] == []


def test_a_wall_clock_would_be_found(tmp_path: Path) -> None:
    """D04: so that the test above can fail."""
    file = tmp_path / "lease.py"
    for text_of_it in ("datetime.now(UTC)", "time.time()", "datetime.datetime.utcnow()"):
        file.write_text(text_of_it)
        assert list(wall_clocks(file)) == ["lease.py:1"]
    file.write_text("pool.now(), time.monotonic(), trio.current_time()")
    assert list(wall_clocks(file)) == []


# what happens to the times of rows: all the same, running backwards, or from another century
DISORDERS = [
    "now()",
    "now() - id_order * interval '1 hour'",
    "timestamptz '1970-01-01' + id_order * interval '1 s'",
]


@pytest.mark.rule(2)
@pytest.mark.parametrize("created_at", DISORDERS)
async def test_order_is_that_of_the_line_whatever_the_times_say(
    world: SeededTenant, created_at: str
) -> None:
    """D14: runs of one moment, or of clocks set back, execute and are read in the order of posting."""
    session = await world.session(Role.MEMBER)
    for n in range(3):
        said = (TextBlock(f"message {n}"),)
        await world.sessions.add_message(world.scope(Role.MEMBER), session.id, "user", said)
    runs = [await world.run(session, f"run {n}", role=Role.MEMBER) for n in range(5)]
    for table, order in (("runs", "session_seq"), ("messages", "seq")):
        await sql(world.pool, _DISORDER.format(table=table, to=created_at.replace("id_order", order)))
    provider = FakeProvider([text(f"answer {n}") for n in range(5)])
    async with started_worker(world, provider):
        await until(world, runs)
    messages = await world.sessions.messages(world.scope(), session.id, limit=200)
    said_in_order = [
        block.text for m in messages for block in m.content if isinstance(block, TextBlock)
    ]
    turns = [line for n in range(5) for line in (f"run {n}", f"answer {n}")]
    assert said_in_order == [*(f"message {n}" for n in range(3)), *turns]
    assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
    listed = await world.runs.list(world.scope(), session_id=session.id)
    assert [run.id for run in listed] == [run.id for run in reversed(runs)]


_DISORDER = "update {table} set created_at = {to}"
