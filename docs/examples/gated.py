"""``python docs/examples/gated.py``: a completion gate.

The model says too early that it is done, is told what is open, and finishes.
"""

import trio

from hango import Agent, Completion, Toolkit, ToolUseBlock, all_todos_done
from hango.testing import FakeProvider, call, text


def plan(*, proofread: bool) -> ToolUseBlock:
    """Have the model write its list."""
    first = {"id": "1", "text": "draft", "completed": True}
    second = {"id": "2", "text": "proofread", "completed": proofread}
    return call("todowrite", {"todos": [first, second]})


async def main() -> None:
    """Have a writer work until its list is done."""
    writer = Agent(
        "writer", description="writes", completion=Completion(all_todos_done, max_attempts=3)
    )
    script = (plan(proofread=False), text("Done!"), plan(proofread=True), text("Really done."))
    async with Toolkit(builtins={"http_fetch": False}) as toolkit:
        outcome = await writer.loop(FakeProvider(script), toolkit).run("Write it.")
    assert (outcome.status, outcome.attempts, outcome.turns) == ("done", 2, 4)
    print(f"{outcome.status} after {outcome.attempts} attempts: {outcome.text}")


if __name__ == "__main__":
    trio.run(main)
