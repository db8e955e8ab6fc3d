"""The mutants fit the code they are meant for; `make mutants` then sees each of them fail a test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_a_mutant_applies_and_names_its_test(patch: Path) -> None:
    """A guard that moved takes its mutant along, and the test it names is there."""
    subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, check=True)  # noqa: S607 - git is git
    head = dict(re.findall(r"^(\w+): (.+)$", patch.read_text("utf-8"), re.MULTILINE))
    file, test = head["Test"].split("::")
    name = test.partition("[")[0]
    assert head["Guard"]
    assert f"def {name}(" in (ROOT / file).read_text("utf-8")
