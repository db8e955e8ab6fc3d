"""Views of a few tools, calls of them, and what the counter of tool errors says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import trio
import trio.testing

from hango.domain import Effects, Result, ToolContext, ToolUseBlock
from hango.safe_errors import MAX_MESSAGE
from hango.telemetry import names
from hango.testing import MemoryLedger
from hango.tools import Registry, Threads, Tool, ToolSet, tool

from support.counters import counted

CONTEXT = ToolContext(run_id=UUID(int=7), turn=2, ordinal=1, call_id="c1")
LIMIT = 10_000  # bytes of a result


@tool(effects=Effects.READ_ONLY)
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool(effects=Effects.IDEMPOTENT)
async def whisper(text: str) -> str:
    """Say it softer."""
    return text.lower()


def registry_of(*tools: Tool, threads: Threads | None = None) -> Registry:
    """Return a registry with *tools*."""
    registry = Registry(threads or Threads())
    for each in tools:
        registry.register(each)
    return registry


def view_of(*tools: Tool, threads: Threads | None = None, timeout: float = 10) -> ToolSet:
    """Return a view of all of *tools*."""
    return registry_of(*tools, threads=threads).view([], timeout=timeout, result_limit=LIMIT)


async def call(view: ToolSet, name: str, **arguments: object) -> Result:
    """Call a tool by name."""
    return await view.call(ToolUseBlock("c1", name, arguments), CONTEXT, MemoryLedger())


async def call_one(made: Tool, **arguments: object) -> Result:
    """Call a tool that is alone in its registry."""
    return await call(view_of(made), made.name, **arguments)


async def failed(body: Callable[[], object]) -> Result:
    """Call a tool ``t`` that does *body*, which must end as an error the model can read."""
    result = await call(view_of(tool(effects=Effects.READ_ONLY, name="t")(body)), "t")
    assert result.is_error
    assert result.for_llm.strip()
    assert len(result.for_llm.encode()) <= MAX_MESSAGE
    return result


@contextmanager
def counting(name: str, kind: str) -> Iterator[None]:
    """Expect that exactly one tool error is counted, under the labels *name* and *kind*."""
    labels = {names.TOOL_NAME: name, names.ERROR_TYPE: kind}
    before = counted(names.TOOL_ERRORS), counted(names.TOOL_ERRORS, **labels)
    yield
    after = counted(names.TOOL_ERRORS), counted(names.TOOL_ERRORS, **labels)
    assert after == (before[0] + 1, before[1] + 1)


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    """Cancel *scope* once everybody waits."""
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()
