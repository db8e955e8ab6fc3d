"""The verifier that comes with hango: is all that was planned done?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hango import RunResult, ToolCall, all_todos_done

OPEN_A = {"id": "1", "text": "A", "completed": False}
DONE_A = {"id": "1", "text": "A", "completed": True}
OPEN_B = {"id": "2", "text": "B", "completed": False}
DONE_B = {"id": "2", "text": "B", "completed": True}


def wrote(*todos: object, is_error: bool = False, name: str = "todowrite") -> ToolCall:
    """Return a call that wrote *todos*."""
    return ToolCall(name, {"todos": list(todos)}, "", is_error)


def judged(*calls: ToolCall) -> tuple[bool, str]:
    """Judge a run of *calls*."""
    return all_todos_done(RunResult("done", calls))


NEVER_WRITTEN = (False, "the list was never written")


def still_open(*texts: str) -> tuple[bool, str]:
    """Return the verdict that *texts* are open."""
    return False, f"{len(texts)} item(s) still open: {'; '.join(texts)}"


@pytest.mark.rule(25)
def test_no_plan_ever_declared_passes() -> None:
    """B16: an agent without the tool, or one that did not use it, is not held up for ever."""
    assert judged() == (True, "")
    other = ToolCall("look", {"todos": [OPEN_A]}, "", is_error=False)
    assert judged(other) == (True, "")
    assert judged(wrote(OPEN_A, name="TodoWrite")) == (True, "")


@pytest.mark.rule(25)
def test_all_completed_passes_and_anything_open_does_not() -> None:
    """The reason names what is open, in its order."""
    assert judged(wrote(DONE_A, DONE_B)) == (True, "")
    assert judged(wrote(DONE_A, OPEN_B)) == still_open("B")
    assert judged(wrote(OPEN_B, DONE_A, OPEN_A)) == still_open("B", "A")
    assert judged(wrote()) == (True, "")


@pytest.mark.rule(25)
def test_the_last_list_counts() -> None:
    """A new plan replaces the old one, be it more or less."""
    assert judged(wrote(OPEN_A), wrote(DONE_A)) == (True, "")
    assert judged(wrote(DONE_A), wrote(DONE_A, OPEN_B)) == still_open("B")
    assert judged(wrote(OPEN_A), wrote(DONE_B)) == (True, "")


@pytest.mark.rule(25)
def test_an_emptied_list_does_not_complete_what_was_open() -> None:
    """B17: giving up is not completing, however often it is tried; completing it after that is."""
    assert judged(wrote(OPEN_A), wrote()) == still_open("A")
    assert judged(wrote(OPEN_A, DONE_B), wrote(), wrote()) == still_open("A")
    assert judged(wrote(OPEN_A), wrote(), wrote(DONE_A)) == (True, "")
    assert judged(wrote(DONE_A), wrote()) == (True, "")
    assert judged(wrote(OPEN_A), wrote(DONE_A), wrote()) == (True, "")


@pytest.mark.rule(25)
@pytest.mark.parametrize("failed", [wrote(DONE_A, is_error=True), wrote(is_error=True)])
def test_a_list_that_was_not_written_does_not_count(failed: ToolCall) -> None:
    """B17, P8: denied by a guardrail, refused, failed: only what succeeded is the plan."""
    assert judged(wrote(OPEN_A), failed) == still_open("A")
    assert judged(failed) == judged(failed, failed) == NEVER_WRITTEN
    assert judged(failed, wrote()) == judged(failed, wrote(DONE_A)) == (True, "")
    assert judged(wrote(DONE_A), wrote(OPEN_B, is_error=True)) == (True, "")


@pytest.mark.rule(25)
@pytest.mark.parametrize("completed", ["false", "true", 1, 1.0, 0, None, "x", [True], {"a": True}])
def test_completed_means_exactly_true(completed: object) -> None:
    """Not nearly: a text that says false is true to many programs."""
    assert judged(wrote({"id": "1", "text": "A", "completed": completed})) == still_open("A")


@pytest.mark.rule(25)
@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"id": "1", "text": "A"}, "A"),
        ({}, ""),
        ({"completed": False, "text": 5}, "5"),
        ("A", "A"),
        (None, "None"),
        (True, "True"),
        ([DONE_A], str([DONE_A])),
    ],
)
def test_what_is_no_item_is_open(item: object, told: str) -> None:
    """A tool of another name's ways may let it through; it is not completed."""
    assert judged(wrote(DONE_B, item)) == still_open(told)


@pytest.mark.rule(25)
@pytest.mark.parametrize("todos", [None, "A", {"1": OPEN_A}, 5, True])
def test_arguments_without_a_list_are_no_plan(todos: object) -> None:
    """They neither make one nor replace one."""
    odd = ToolCall("todowrite", {"todos": todos}, "", is_error=False)
    none = ToolCall("todowrite", {}, "", is_error=False)
    assert judged(odd) == judged(none) == NEVER_WRITTEN
    assert judged(wrote(OPEN_A), odd, none) == still_open("A")


def model(calls: list[tuple[list[tuple[str, bool]], bool]]) -> list[str]:
    """Return what is open after *calls*, each a list and whether it failed: the rule, once more."""
    left: list[str] = []
    for todos, failed in calls:
        if not failed and (todos or not left):
            left = [text for text, completed in todos if not completed]
    return left


@pytest.mark.rule(25)
@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.text(max_size=3), st.booleans()), max_size=3), st.booleans())
    )
)
def test_any_history_is_judged_by_the_rule(calls: list[tuple[list[tuple[str, bool]], bool]]) -> None:
    """Whatever was written, in any order."""
    history = [
        wrote(*({"id": "", "text": text, "completed": c} for text, c in todos), is_error=failed)
        for todos, failed in calls
    ]
    left = model(calls)
    if history and all(call.is_error for call in history):
        assert judged(*history) == NEVER_WRITTEN
    else:
        assert judged(*history) == (still_open(*left) if left else (True, ""))
