"""The line of sessions to claim from, and the pauses between tries: pure, without any I/O."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from hango.actors.ready_queue import Line
from hango.backoff import Backoff

A, B, C, D = (UUID(int=n) for n in range(1, 5))


def drained(line: Line) -> list[UUID]:
    """Take everybody, in order."""
    order = []
    while (session_id := line.take()) is not None:
        order.append(session_id)
    return order


def test_a_session_stands_in_the_line_once_where_it_was_first() -> None:
    """Doorbells coalesce."""
    line = Line()
    for session_id in (A, B, A, A):
        line.add(session_id)
    assert drained(line) == [A, B]


def test_a_session_being_served_comes_back_behind_the_others() -> None:
    """It is not taken twice, and a ring meanwhile is not lost."""
    line = Line()
    line.add(A)
    assert line.take() == A
    line.add(A)
    line.add(B)
    assert line.rung_meanwhile(A)
    assert line.take() == B
    assert line.take() is None
    line.done(A)
    assert line.take() == A
    assert not line.rung_meanwhile(A)


def test_a_session_that_was_not_rung_meanwhile_does_not_come_back() -> None:
    """Only what rings, or what a look sees, is tried."""
    line = Line()
    line.add(A)
    line.take()
    line.done(A)
    assert (line.take(), line.serving) == (None, 0)


def test_a_look_keeps_places_drops_the_idle_and_puts_the_just_served_last() -> None:
    """B waited and has a run, C waited and has none, A was just served, D is new."""
    line = Line()
    line.add(A)
    line.take()
    for session_id in (C, B):
        line.add(session_id)
    line.done(A)
    line.arrange([A, D, B], line.waiting())
    assert drained(line) == [B, D, A]


def test_a_ring_during_a_look_survives_it() -> None:
    """The look saw the table from before the ring."""
    line = Line()
    line.add(A)
    waited = line.waiting()
    line.add(B)
    line.arrange([C], waited)
    assert drained(line) == [C, B]


def test_a_look_does_not_put_back_who_is_being_served() -> None:
    """It may see a session between the end of its run and the end of serving it: that comes after."""
    line = Line()
    line.add(A)
    line.take()
    line.arrange([A], ())
    assert line.take() is None
    line.done(A)
    assert line.take() == A


@given(st.lists(st.integers(0, 5000), max_size=3000))
def test_the_line_is_bounded_whoever_rings(numbers: list[int]) -> None:
    """What does not fit is found by a look."""
    line = Line()
    for number in numbers:
        line.add(UUID(int=number))
    assert len(line.waiting()) == min(len(set(numbers)), 1000)


@given(st.lists(st.sampled_from(["ring", "take", "done", "look"]), max_size=60), st.data())
def test_whatever_happens_nobody_waits_while_being_served(
    steps: list[str], data: st.DataObject
) -> None:
    """One actor per session: the line never offers a session that is being served."""
    line, serving, sessions = Line(), [], st.sampled_from([A, B, C, D])
    for step in steps:
        if step == "ring":
            line.add(data.draw(sessions))
        elif step == "take" and (session_id := line.take()) is not None:
            assert session_id not in serving
            serving.append(session_id)
        elif step == "done" and serving:
            line.done(serving.pop())
        elif step == "look":
            line.arrange(data.draw(st.lists(sessions, unique=True)), line.waiting())
        assert not set(line.waiting()) & set(serving)
        assert line.serving == len(serving)


def test_pauses_double_up_to_a_bound_and_begin_again() -> None:
    """Neither a spin nor a pause without end."""
    backoff = Backoff(0.1, 0.5)
    assert [backoff.pause() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.reset()
    assert backoff.pause() == 0.1
