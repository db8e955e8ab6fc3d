"""Take each guard out, one at a time, and see the test fail that is there for it.

A mutant is a patch whose head says what becomes possible without the guard (``Guard:``) and which test
must fail then (``Test:``).  Each is applied to a copy of what git knows of; the tree is not touched.
Exits with 1 if a guard can go unnoticed: the patch does not apply, the test passes, or is not there.

    python tests/mutants/run.py [NAME ...]
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
FAILED = 1  # pytest's exit code when tests ran and failed


@attrs.frozen
class Mutant:
    """One guard taken out."""

    patch: Path
    guard: str
    test: str

    @classmethod
    def read(cls, patch: Path) -> Mutant:
        """Read the head of a patch."""
        text = patch.read_text("utf-8")
        head = {key: re.search(rf"^{key}: (.+)$", text, re.MULTILINE) for key in ("Guard", "Test")}
        values = [found[1] for found in head.values() if found]
        guard, test = values
        return cls(patch, guard, test)

    def survives(self, tree: Path) -> str:
        """Say how the mutant went unnoticed in *tree*; empty if its test failed, as it must."""
        applied = _run(tree, "git", "apply", "--whitespace=nowarn", str(self.patch))
        if applied.returncode:
            return f"does not apply: {applied.stderr.strip()}"
        tested = _run(tree, sys.executable, "-m", "pytest", "-q", "-x", self.test)
        _run(tree, "git", "apply", "-R", "--whitespace=nowarn", str(self.patch)).check_returncode()
        if tested.returncode == FAILED:
            return ""
        lines = tested.stdout.strip().splitlines() or ["no output"]
        return f"{self.test} does not fail: {lines[-1]}"


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _copy(tree: Path) -> None:
    """Copy what git knows of, as it is in the working tree, and make it a repository to patch."""
    known = _run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for name in filter(None, known.split("\0")):
        if (ROOT / name).is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    _run(tree, "git", "init", "-q").check_returncode()


def main(names: list[str]) -> int:
    """Try the mutants named, or all; return the exit code."""
    patches = sorted(Path(__file__).parent.glob("*.patch"))
    mutants = [Mutant.read(patch) for patch in patches if not names or patch.stem in names]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="hango-mutants-") as folder:
        Path(folder).chmod(0o755)
        _copy(Path(folder))
        for mutant in mutants:
            reason = mutant.survives(Path(folder))
            survivors += bool(reason)
            verdict = f"SURVIVED: {reason}" if reason else "killed"
            print(f"{mutant.patch.stem:28} {verdict}", flush=True)  # noqa: T201 - a program's output
    print(f"{len(mutants)} mutants, {survivors} survived")  # noqa: T201 - a program's output
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
