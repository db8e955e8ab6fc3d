"""``python docs/examples/unsupported.py``: an agent's own tools, and what a run in a process ignores.

What it ignores is named before the run, and logged when it starts.
"""

import trio

from hango import Agent, Toolkit, loop_unsupported, tool
from hango.testing import FakeProvider, call, text


@tool(effects="read_only")
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


async def main() -> None:
    """Declare more than a run in a process can do, ask what is ignored, and run it."""
    coordinator = Agent(
        "coordinator",
        description="coordinates",
        tools=[look_up],
        team=[Agent("helper", description="helps")],
        wait_for=input,
        on_metric=print,
    )
    ignored = loop_unsupported(coordinator)
    assert ignored == ["team", "wait_for", "on_metric"]
    async with Toolkit(builtins=False) as toolkit:
        loop = coordinator.loop(
            FakeProvider([call("look_up", {"word": "bee"}), text("Done.")]), toolkit
        )
        assert loop.unsupported() == ignored
        outcome = await loop.run("What is a bee?")
    assert [used.output for used in outcome.result.tool_calls] == ["bee: a word"]
    print("ignored in this process:", ", ".join(ignored))


if __name__ == "__main__":
    trio.run(main)
