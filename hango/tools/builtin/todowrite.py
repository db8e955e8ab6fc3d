"""todowrite: the todo list of a run.

Safe to re-execute: it stores nothing.  The list is the last call in the transcript.
"""

from __future__ import annotations

from dataclasses import dataclass

from hango.domain import Effects
from hango.tools.tool import Tool, tool


def make_todowrite() -> Tool:
    """Make the tool."""

    @tool(effects=Effects.READ_ONLY)
    async def todowrite(todos: list[Todo]) -> str:
        """Replace the todo list of this task with a new one, and return it.

        Args:
            todos: The whole list, finished items included.
        """
        lines = [f"[{'x' if todo.completed else ' '}] {todo.text}" for todo in todos]
        return "\n".join(lines) or "(no todos)"

    return todowrite


@dataclass(frozen=True)  # what pydantic makes a schema of
class Todo:
    """One thing to do."""

    id: str
    text: str
    completed: bool
