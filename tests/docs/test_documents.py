"""The documentation is true: its code runs, its pictures and tables agree with the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from hango.config.settings import effective, load
from hango.domain import TRANSITIONS, ErrorCode, RunState
from hango.web import problem

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = Sybil(parsers=[PythonCodeBlockParser()])

TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
PAGES_WITH_TESTS = [page for page in PAGES if TEST.search(page.read_text("utf-8"))]
# a block whose first line is a comment with a file's name is that file
NAMED_BLOCK = re.compile(r"^```\w+\n(?=# ([\w.]+\.\w+)\n)(.*?)^```$", re.MULTILINE | re.DOTALL)
WARNINGS = ("-W", "error", "-W", "ignore:'AbstractChildWatcher' is deprecated:DeprecationWarning")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_code_runs(page: Path) -> None:
    """Every block of Python in a page runs, in order, in one namespace."""
    for example in EXAMPLES.parse(page):
        example.evaluate()


@pytest.mark.parametrize("page", PAGES_WITH_TESTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_in_a_page_pass(page: Path, tmp_path: Path, server: str) -> None:
    """A reader who copies a page's files, and runs pytest, sees every test in them pass."""
    files = dict(NAMED_BLOCK.findall(page.read_text("utf-8")))
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *WARNINGS, "-rA"],
        cwd=tmp_path,
        env=os.environ | {"HANGO_TEST_DATABASE_URL": server},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    passed = re.findall(r"^PASSED \S+::(\w+)$", done.stdout, re.MULTILINE)
    assert sorted(passed) == sorted(TEST.findall(page.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file or folder that is there."""
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_picture_of_the_states_is_the_table() -> None:
    """docs/state_machine.md draws the transitions that the code has, no more and no less."""
    text = (ROOT / "docs/state_machine.md").read_text("utf-8")
    drawn = set(re.findall(r"^ {4}(\w+) --> (\w+)$", text, re.MULTILINE))
    assert drawn == {(old, new) for old, following in TRANSITIONS.items() for new in following}
    ends = set(re.findall(r"^ {4}(\w+) --> \[\*\]$", text, re.MULTILINE))
    assert ends == {state for state in RunState if state.terminal}


def test_every_setting_is_in_the_reference() -> None:
    """The reference lists the settings there are, each once, and no others."""
    text = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(effective(load({})))


def test_every_error_code_is_in_the_reference() -> None:
    """Programs find each code they may meet: those of runs, and those of answers."""
    text = (ROOT / "docs/reference/http.md").read_text("utf-8")
    kinds = {it.code for it in vars(problem).values() if isinstance(it, problem.ProblemType)}
    assert {code for code in {*kinds, *ErrorCode} if f"`{code}`" not in text} == set()
