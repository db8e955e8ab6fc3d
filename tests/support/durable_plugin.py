"""A plug-in for processes that get killed: a scripted model, and tools that leave a mark.

The prompt is the script: a word a turn, each the name of a tool, and then the model is done.  What
happens is written to the journal, the file named by ``DURABLE_JOURNAL``: a line a happening, which
outlives the process.
"""

from __future__ import annotations

import os
from pathlib import Path

import trio

from hango import Effects, Plugins, ToolContext, tool
from hango.domain import Block, PromptMessage, ProviderRequest, TextBlock
from hango.testing import FakeProvider, call, text


def journal() -> Path:
    """Where happenings are written."""
    return Path(os.environ["DURABLE_JOURNAL"])


def write(line: str) -> None:
    """Append a line: one write, so that lines of several processes do not mix."""
    with journal().open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@tool(effects=Effects.READ_ONLY)
async def note(context: ToolContext) -> str:
    """Leave a mark."""
    write(f"note {context.run_id} {context.turn}")
    print("noted", flush=True)  # noqa: T201 - a test counts the lines
    return "noted"


@tool(effects=Effects.READ_ONLY)
async def hold(context: ToolContext) -> str:
    """Tell that it holds, and hold until somebody makes the journal's ``.go``; safe to run again."""
    write(f"hold {context.run_id} {context.turn}")
    print(f"holding {context.run_id}", flush=True)  # noqa: T201 - the test waits for the line
    while not journal().with_suffix(".go").exists():  # noqa: ASYNC110 - made by another process
        await trio.sleep(0.01)
    return "let go"


def _answer(request: ProviderRequest) -> Block:
    asked = max(n for n, message in enumerate(request.messages) if _prompt(message))
    words = _prompt(request.messages[asked]).split()
    turn = sum(message.role == "assistant" for message in request.messages[asked:])
    write(f"provider {words[0]} {turn + 1}")
    return call(words[turn + 1]) if turn + 1 < len(words) else text(f"done with {words[0]}")


def _prompt(message: PromptMessage) -> str:
    if message.role != "user":
        return ""
    return " ".join(block.text for block in message.content if isinstance(block, TextBlock))


def register(plugins: Plugins) -> None:
    """Register the model and its tools."""
    plugins.tool(note)
    plugins.tool(hold)
    plugins.provider("scripted", lambda: FakeProvider(_answer, name="scripted"))
