"""``python docs/examples/plain.py``: the smallest run in a process, without gate and database.

The model is scripted, so it needs no key.  A real one: `hango.openai_provider(base_url=…, model=…)`.
"""

import trio

from hango import Agent, Toolkit
from hango.testing import FakeProvider, text


async def main() -> None:
    """Ask once."""
    greeter = Agent("greeter", description="answers", instructions="Be brief.")
    provider = FakeProvider([text("Hi there.")])
    async with Toolkit(builtins=False) as toolkit:
        loop = greeter.loop(provider, toolkit)
        outcome = await loop.run("Hello")
    assert (outcome.status, outcome.attempts, outcome.stopped_by) == ("done", 1, "")
    assert loop.status == "idle"
    print(outcome.status, outcome.text)


if __name__ == "__main__":
    trio.run(main)
