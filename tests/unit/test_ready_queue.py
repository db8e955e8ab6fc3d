"""The queue of sessions to claim from, and the pauses between tries: pure, without any I/O."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango.actors.ready_queue import Ready, ReadyQueue
from hango.backoff import Backoff

ONE, TWO = UUID(int=100), UUID(int=200)
A, B, C, D = (Ready(ONE, UUID(int=n)) for n in range(1, 5))
X, Y = (Ready(TWO, UUID(int=n)) for n in range(5, 7))


def drained(queue: ReadyQueue) -> list[Ready]:
    """Take every session, in order; all stay in progress."""
    order = []
    while (ready := queue.pop()) is not None:
        order.append(ready)
    return order


def ids(sessions: Collection[Ready]) -> set[UUID]:
    """Return the sessions' ids."""
    return {ready.session_id for ready in sessions}


def test_a_session_waits_once_where_it_was_first() -> None:
    """Notifications coalesce."""
    queue = ReadyQueue()
    for ready in (A, B, A, A):
        queue.add(ready)
    assert drained(queue) == [A, B]


def test_a_session_in_progress_comes_back_behind_the_others() -> None:
    """It is not taken twice, and a notification meanwhile is not lost."""
    queue = ReadyQueue()
    queue.add(A)
    assert queue.pop() == A
    queue.add(A)
    queue.add(B)
    assert queue.notified_again(A.session_id)
    assert queue.pop() == B
    assert queue.pop() is None
    queue.release(A.session_id)
    assert queue.pop() == A
    assert not queue.notified_again(A.session_id)


def test_a_session_that_was_not_notified_meanwhile_does_not_come_back() -> None:
    """Only what is notified, or what a poll finds, is tried."""
    queue = ReadyQueue()
    queue.add(A)
    queue.pop()
    queue.release(A.session_id)
    assert (queue.pop(), queue.in_progress) == (None, 0)


def test_a_poll_drops_the_idle_and_puts_the_just_served_last() -> None:
    """B waited and has a run, C waited and has none, A was just served, D is new."""
    queue = ReadyQueue()
    queue.add(A)
    queue.pop()
    for ready in (C, B):
        queue.add(ready)
    queue.release(A.session_id)
    queue.reorder([A, B, D], queue.ready())
    assert drained(queue) == [B, D, A]


def test_a_notification_during_a_poll_survives_it() -> None:
    """The poll saw the table from before."""
    queue = ReadyQueue()
    queue.add(A)
    waited = queue.ready()
    queue.add(B)
    queue.reorder([C], waited)
    assert drained(queue) == [C, B]


def test_a_poll_does_not_put_back_what_is_in_progress() -> None:
    """It may find a session between the end of its run and its release: that comes after."""
    queue = ReadyQueue()
    queue.add(A)
    queue.pop()
    queue.reorder([A], ())
    assert queue.pop() is None
    queue.release(A.session_id)
    assert queue.pop() == A


@pytest.mark.rule(6)
def test_the_tenant_with_the_fewest_in_progress_goes_first() -> None:
    """R-F6, S-H5: whatever came first, and however much of it."""
    queue = ReadyQueue()
    for ready in (A, B, C, D):
        queue.add(ready)
    assert [queue.pop(), queue.pop()] == [A, B]
    queue.add(X)
    queue.add(Y)
    assert drained(queue) == [X, Y, C, D]


@pytest.mark.rule(6)
def test_tenants_with_as_many_in_progress_take_turns() -> None:
    """With one slot, released after each run, neither goes twice while the other waits."""
    queue, order = ReadyQueue(), []
    for ready in (A, B, C, X, Y):
        queue.add(ready)
    while (taken := queue.pop()) is not None:
        order.append(taken)
        queue.release(taken.session_id)
    assert order == [A, X, B, Y, C]


@pytest.mark.rule(6)
@given(st.integers(1, 2000), st.integers(1, 64))
def test_one_session_starts_within_one_slots_turn_of_a_flood(flood: int, slots: int) -> None:
    """A tenant that queues thousands delays another's run by what is running, no more."""
    queue = ReadyQueue()
    for number in range(flood):
        queue.add(Ready(ONE, UUID(int=1000 + number)))
    running = [ready for _ in range(slots) if (ready := queue.pop()) is not None]
    queue.reorder(
        [Ready(ONE, UUID(int=1000 + number)) for number in range(slots, flood)], queue.ready()
    )
    queue.add(X)
    queue.release(running[0].session_id)
    assert queue.pop() == X


@pytest.mark.rule(29)
@given(st.lists(st.integers(0, 5000), max_size=3000))
def test_the_queue_is_bounded_whatever_is_notified(numbers: list[int]) -> None:
    """What does not fit is found by a poll."""
    queue = ReadyQueue()
    for number in numbers:
        queue.add(Ready(ONE, UUID(int=number)))
    assert len(queue.ready()) == min(len(set(numbers)), 1000)


@given(st.lists(st.sampled_from(["notify", "pop", "release", "poll"]), max_size=60), st.data())
def test_whatever_happens_nothing_waits_while_in_progress(
    steps: list[str], data: st.DataObject
) -> None:
    """One actor per session: the queue never offers a session that is in progress."""
    queue, running, sessions = ReadyQueue(), list[Ready](), st.sampled_from([A, B, C, D, X, Y])
    for step in steps:
        if step == "notify":
            queue.add(data.draw(sessions))
        elif step == "pop" and (ready := queue.pop()) is not None:
            assert ready not in running
            running.append(ready)
        elif step == "release" and running:
            queue.release(running.pop().session_id)
        elif step == "poll":
            queue.reorder(data.draw(st.lists(sessions, unique=True)), queue.ready())
        assert not ids(running) & set(queue.ready())
        assert queue.in_progress == len(running)


def test_pauses_double_up_to_a_bound_and_begin_again() -> None:
    """Neither a spin nor a pause without end."""
    backoff = Backoff(0.1, 0.5)
    assert [backoff.pause() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.reset()
    assert backoff.pause() == 0.1
