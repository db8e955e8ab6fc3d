"""``python docs/examples/durable.py``: a durable run with a guardrail and a completion gate.

This file is the plug-in that registers both, and a scripted model, so it needs no key.  As a program it
stores an agent that names them, and runs a prompt.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from hango import BeforeToolEvent, Effects, Plugins, RunResult, Verdict, tool
from hango.testing import FakeProvider, call, text


@tool(effects=Effects.UNSAFE)
def publish(article: str) -> str:
    """Publish an article.

    Not safe to run again: readers would get it twice.
    """
    return f"published {len(article)} characters"


def only_drafts(event: BeforeToolEvent) -> str | None:
    """Keep the model from publishing."""
    return "only an editor publishes" if event.name == "publish" else None


def names_its_source(result: RunResult) -> Verdict:
    """Want a source in the last answer."""
    return "Source:" in result.text, "it names no source"


def register(plugins: Plugins) -> None:
    """Register all that the agent names."""
    plugins.tool(publish)
    plugins.guardrail("only_drafts", only_drafts)
    plugins.verifier("names_its_source", names_its_source)
    answers = (
        call("publish", {"article": "Bees can count."}),
        text("Bees can count."),
        text("Bees can count.  Source: Chittka, 1995."),
    )
    plugins.provider("scripted", lambda: FakeProvider(answers, name="scripted"))


def main() -> None:
    """Store an agent, a new one each time, and run it."""
    slug = f"reporter-{time.time_ns()}"
    hango("tenant", "create", "default")  # says so if it is there already
    hango(
        *("agent", "create", "--tenant", "default", "--slug", slug, "--json"),
        *("--provider", "scripted", "--model", "any", "--guardrail", "only_drafts"),
        *("--verify", "names_its_source", "--max-attempts", "3"),
    )
    sys.exit(hango("run", "--agent", slug, "--json", "What do bees know?"))


def hango(*words: str) -> int:
    """Call hango with this file as its plug-in."""
    here = Path(__file__)
    environment = os.environ | {"HANGO_PLUGINS": here.stem, "PYTHONPATH": str(here.parent)}
    command = [sys.executable, "-m", "hango.cli", *words]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    main()
