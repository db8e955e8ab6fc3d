"""todowrite: the todo list of a run.

Safe to re-execute: it stores nothing.  The list is the last call in the transcript.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from hango.domain import Effects, JsonObject
from hango.domain.todos import Todo, read_todo
from hango.errors import InvalidInput
from hango.tools.tool import Tool

_DESCRIPTION = "Replace the todo list of this task with a new one, and return it."
_ITEM: JsonObject = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "text": {"type": "string"},
        "completed": {"type": "boolean"},
    },
    "required": ["id", "text", "completed"],
    "additionalProperties": False,
}
_TODOS = {"type": "array", "description": "The whole list, finished items included."}
# Models are shown one shape of items, but are not refused for a number as id, for keys of their own, or
# for the shape that another agent's tool of this name has.
_SHOWN: JsonObject = {
    "type": "object",
    "properties": {"todos": {**_TODOS, "items": _ITEM}},
    "required": ["todos"],
    "additionalProperties": False,
}
_ACCEPTED: JsonObject = {"type": "object", "properties": {"todos": _TODOS}, "required": ["todos"]}


def make_todowrite() -> Tool:
    """Make the tool."""

    async def todowrite(todos: Sequence[Todo]) -> str:
        lines = [f"[{'x' if todo.completed else ' '}] {todo.text}" for todo in todos]
        return "\n".join(lines) or "(no todos)"

    return Tool(
        "todowrite",
        _DESCRIPTION,
        _SHOWN,
        Effects.READ_ONLY,
        todowrite,
        accepts=_ACCEPTED,
        convert=_convert,
    )


def _convert(arguments: JsonObject) -> Mapping[str, object]:
    items = cast("Sequence[object]", arguments["todos"])
    todos: list[Todo] = []
    for place, item in enumerate(items):
        try:
            todos.append(read_todo(item))
        except ValueError as error:
            raise InvalidInput(f"$.todos[{place}]: {error}") from None
    return {"todos": todos}
