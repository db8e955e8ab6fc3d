"""``python docs/examples/unsupported.py``: what the direct door cannot honour.

It is named before the run, not dropped in silence.
"""

from hango import Agent, Effects, Toolkit, loop_unsupported, tool
from hango.testing import FakeProvider


@tool(effects=Effects.READ_ONLY)
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


def main() -> None:
    """Ask an agent that declares all four, and its loop."""
    coordinator = Agent(
        "coordinator",
        does="coordinates",
        tools=[look_up],
        team=[Agent("helper", does="helps")],
        wait_for=input,
        on_metric=print,
    )
    missing = loop_unsupported(coordinator)
    assert missing == ["tools", "team", "waitFor", "onMetric"]
    loop = coordinator.loop(FakeProvider([]), Toolkit(builtins=False))
    assert loop.unsupported() == missing
    print("not through this door:", ", ".join(missing))


if __name__ == "__main__":
    main()
