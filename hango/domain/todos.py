"""Items of a todo list, in the shapes that models write.

Rule: the tool that takes a list and the gate that judges it read items here, so they agree on them.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

# How other agents' tools of this name call it (Claude Code, OpenCode); models know it from there.
_STATUSES: Mapping[str, bool] = {
    "pending": False,
    "in_progress": False,
    "cancelled": False,
    "completed": True,
}


@attrs.frozen
class Todo:
    """One thing to do."""

    text: str
    completed: bool


def read_todo(item: object) -> Todo:
    """Read ``{"text", "completed"}`` or ``{"content", "status"}``; other keys do not matter.

    Raises:
        ValueError: it is neither; says what is missing.
    """
    if not isinstance(item, Mapping):
        raise ValueError("must be an object with text and completed")  # noqa: TRY004  # data, not a type
    text = item.get("text", item.get("content"))
    if not isinstance(text, str):
        raise ValueError("text must be a string")  # noqa: TRY004  # data, not a type
    status = item.get("status")
    if "completed" not in item and isinstance(status, str) and status in _STATUSES:
        return Todo(text, _STATUSES[status])
    if not isinstance(completed := item.get("completed"), bool):
        raise ValueError("completed must be true or false")  # noqa: TRY004  # data, not a type
    return Todo(text, completed)
