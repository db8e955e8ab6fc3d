"""todowrite: the list, written down and read back."""

from __future__ import annotations

from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hango import RunResult, ToolCall, all_todos_done
from hango.domain import Effects, JsonObject, Result
from hango.tools.builtin.todowrite import make_todowrite

from support.tools import call, counting, view_of

VIEW = view_of(make_todowrite())
DRAFT = {"id": "1", "text": "draft", "completed": True}
CHECK = {"id": "2", "text": "proofread", "completed": False}


async def write(*todos: object) -> Result:
    """Write *todos*."""
    return await call(VIEW, "todowrite", todos=list(todos))


async def test_the_list_comes_back_as_lines() -> None:
    """In its order, a line each, ticked or not."""
    assert await write(DRAFT, CHECK) == Result("[x] draft\n[ ] proofread")
    assert await write(CHECK, DRAFT) == Result("[ ] proofread\n[x] draft")


async def test_an_empty_list_says_so() -> None:
    """No provider takes an empty text."""
    assert await write() == Result("(no todos)")


async def test_each_call_replaces_the_whole_list() -> None:
    """Nothing is kept from the call before: not for another run either."""
    await write(DRAFT, CHECK)
    assert await write(CHECK) == Result("[ ] proofread")
    assert await write() == Result("(no todos)")


def test_it_may_run_again() -> None:
    """It keeps nothing, so a turn that is driven again does no harm."""
    made = make_todowrite()
    assert (made.name, made.effects) == ("todowrite", Effects.READ_ONLY)


def test_the_model_is_told_its_shape() -> None:
    """Items of an id, a text and a bool, all of them needed; and that the list is replaced."""
    made = make_todowrite()
    assert made.parameters["required"] == ["todos"]
    todos = cast("dict[str, JsonObject]", made.definition.parameters["properties"])["todos"]
    items = cast("JsonObject", todos["items"])
    fields = cast("dict[str, JsonObject]", items["properties"])
    assert {name: field["type"] for name, field in fields.items()} == {
        "id": "string",
        "text": "string",
        "completed": "boolean",
    }
    assert items["required"] == ["id", "text", "completed"]
    assert "Replace" in made.description


@pytest.mark.rule(18)
@pytest.mark.rule(25)
@pytest.mark.parametrize(
    "todos",
    [
        None,
        "draft",
        DRAFT,
        [None],
        ["draft"],
        [[]],
        [{}],
        [{"id": "1", "text": "draft"}],
        [{"id": "1", "completed": True}],
        [{"content": "draft", "status": "done"}],
        [{"content": "draft", "status": True}],
        [{"content": 5, "status": "completed"}],
        [{"text": "draft", "status": "completed", "completed": "true"}],
        [DRAFT | {"completed": "true"}],
        [DRAFT | {"completed": "false"}],
        [DRAFT | {"completed": 1}],
        [DRAFT | {"completed": None}],
        [DRAFT | {"text": None}],
        [DRAFT, CHECK | {"completed": "no"}],
    ],
)
async def test_what_is_no_list_of_todos_is_not_written(todos: object) -> None:
    """B17: it is an error, and so no gate takes it for the list."""
    with counting("todowrite", "invalid_arguments"):
        result = await call(VIEW, "todowrite", todos=todos)
    assert result.is_error


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (DRAFT | {"id": 1}, "[x] draft"),
        (DRAFT | {"priority": "high", "activeForm": "Drafting"}, "[x] draft"),
        ({"text": "draft", "completed": False}, "[ ] draft"),
        ({"content": "draft", "status": "completed", "activeForm": "Drafting"}, "[x] draft"),
        ({"content": "draft", "status": "in_progress", "id": "1"}, "[ ] draft"),
        ({"content": "draft", "status": "pending", "completed": True}, "[x] draft"),
    ],
)
async def test_what_models_are_used_to_write_is_written(item: object, line: str) -> None:
    """P8: a number as id, more keys, or the shape of other agents' tools; the gate reads the same."""
    assert await write(item) == Result(line)
    assert (await call(VIEW, "todowrite", todos=[item], merge=True)).for_llm == line
    verdict = all_todos_done(
        RunResult("", (ToolCall("todowrite", {"todos": [item]}, line, is_error=False),))
    )
    assert verdict[0] is line.startswith("[x]")


@pytest.mark.rule(18)
async def test_a_call_without_a_list_is_not_written() -> None:
    """Nor taken for an empty one."""
    with counting("todowrite", "invalid_arguments"):
        assert (await call(VIEW, "todowrite")).is_error


@pytest.mark.rule(20)
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=())), st.booleans()), min_size=1))
def test_any_text_can_be_written(items: list[tuple[str, bool]]) -> None:
    """C01: it comes back clean, and as often as it was written."""
    todos = [{"id": "", "text": text, "completed": completed} for text, completed in items]
    result = trio.run(lambda: write(*todos))
    assert not result.is_error
    marks = ["[x] " if completed else "[ ] " for _, completed in items]
    assert sum(result.for_llm.count(mark) for mark in ("[x] ", "[ ] ")) >= len(marks)
    assert result.for_llm.startswith(marks[0])
    result.for_llm.encode()
