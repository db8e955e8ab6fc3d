"""A plug-in for processes that get killed: a scripted model, and tools that leave a mark.

The prompt is the script: after its own name a word a turn, each the name of a tool, or several joined
by ``+`` to be called at once, and then the model is done.  The word ``claim`` has it say that it is
done before it is.  What happens is written to the journal, the file named by ``DURABLE_JOURNAL``: a
line a happening, which outlives the process.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import trio

from hango import Effects, Plugins, Result, ToolContext, tool
from hango.domain import Block, PromptMessage, ProviderRequest, TextBlock
from hango.testing import Answer, FakeProvider, answer, call, text

from support.pausing_provider import PausingProvider

CLAIM = "claim"


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
    return await _held(context)


@tool(effects=Effects.KEYED)
async def pay(context: ToolContext) -> str:
    """Leave a mark with the key, and hold like `hold`; whoever is paid knows the key."""
    write(f"pay {context.idempotency_key}")
    return await _held(context)


@tool(effects=Effects.UNSAFE)
async def send(context: ToolContext) -> str:
    """Leave a mark, and hold like `hold`; must not run again."""
    write(f"send {context.run_id} {context.turn}")
    return await _held(context)


@tool(effects=Effects.UNSAFE)
async def post(context: ToolContext) -> Result:
    """Leave a mark; must not run again."""
    write(f"post {context.idempotency_key}")
    return Result("posted", "It is in the post.")


@tool(effects=Effects.READ_ONLY)
async def die(context: ToolContext) -> str:
    """Leave a mark, and kill the process a moment later; whatever is made of it, it does so again."""
    write(f"die {context.run_id} {context.turn}")
    print(f"dying {context.run_id}", flush=True)  # noqa: T201 - the test waits for the line
    await trio.sleep(0.5)  # so that others get on with a turn meanwhile
    signal.raise_signal(signal.SIGKILL)
    raise AssertionError("it lives")


async def _held(context: ToolContext) -> str:
    await _hold(str(context.run_id))
    return "let go"


async def _hold(name: str) -> None:
    print(f"holding {name}", flush=True)  # noqa: T201 - the test waits for the line
    while not journal().with_suffix(".go").exists():  # noqa: ASYNC110 - made by another process
        await trio.sleep(0.01)


def asked(request: ProviderRequest) -> tuple[list[str], int]:
    """Return the words of the prompt that is to be answered, and in which turn of it that is."""
    at = max(n for n, message in enumerate(request.messages) if _prompt(message))
    words = _prompt(request.messages[at]).split()
    return words, 1 + sum(message.role == "assistant" for message in request.messages[at:])


def said(words: list[str], turn: int) -> Answer | Block:
    """Return what the script of *words* has the model say in that turn."""
    if turn < len(words) and words[turn] == CLAIM:
        return text("that should do")
    if turn < len(words):
        return answer(*map(call, words[turn].removeprefix("…").split("+")))
    return text(f"done with {words[0]}")


def _answer(request: ProviderRequest) -> Answer | Block:
    words, turn = asked(request)
    write(f"provider {words[0]} {turn}")
    return said(words, turn)


async def _in_the_middle(request: ProviderRequest) -> None:
    words, turn = asked(request)
    if turn < len(words) and words[turn].startswith("…"):
        await _hold(f"the answer of {words[0]}")


def _prompt(message: PromptMessage) -> str:
    if message.role != "user":
        return ""
    said = " ".join(block.text for block in message.content if isinstance(block, TextBlock))
    return "" if said.startswith("Your work did not verify") else said


def model() -> PausingProvider:
    """Make the model."""
    return PausingProvider(FakeProvider(_answer, name="scripted"), _in_the_middle)


TOOLS = (note, hold, pay, send, post, die)


def register(plugins: Plugins) -> None:
    """Register the model and its tools."""
    for each in TOOLS:
        plugins.tool(each)
    plugins.provider("scripted", model)
