"""The examples run, as a reader would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs/examples"


def run(name: str, **settings: str) -> tuple[str, str]:
    """Run an example; return what it prints, on standard output and on standard error."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HANGO_")}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / name)],
        env=inherited | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "printed", "logged"),
    [
        ("plain.py", "done Hi there.\n", ""),
        ("gated.py", "done after 2 attempts: Really done.\n", ""),
        (
            "unsupported.py",
            "ignored in this process: team, wait_for, on_metric\n",
            "agent 'coordinator': a run in this process ignores ['team', 'wait_for', 'on_metric']\n",
        ),
    ],
)
def test_an_example_prints_what_it_shows(name: str, printed: str, logged: str) -> None:
    """Each is a program of its own."""
    assert run(name) == (printed, logged)


def test_the_durable_example_passes_its_guardrail_and_its_gate(database: str) -> None:
    """Its run is stored with two attempts, the second of which names its source."""
    printed, progress = run("durable.py", HANGO_DATABASE_URL=database)
    ended = json.loads(printed.splitlines()[-1])
    assert (ended["state"], ended["attempts"], ended["iterations"]) == ("succeeded", 2, 3)
    assert "Source:" in ended["text"]
    assert "publish failed: denied: only an editor publishes" in progress
    assert "not done: it names no source" in progress


def test_every_example_is_tested() -> None:
    """A new one gets a test here."""
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "durable.py",
        "gated.py",
        "plain.py",
        "unsupported.py",
    ]
