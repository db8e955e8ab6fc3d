"""Dependencies: what is imported is declared, what is declared is used, and all versions are pinned."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

# not imported, but read by what is: zoneinfo
NOT_IMPORTED = {"tzdata"}
# part of a declared dependency, which pins or requires the version it needs
PART_OF_ANOTHER = {"pydantic-core": "pydantic", "werkzeug": "quart"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """An unused dependency costs every installation; a missing one breaks a later one."""
    distributions = metadata.packages_distributions()
    declared = {_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    optional = {_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["testing"]}
    used = set()
    for module in sorted(_imported()):
        names = {_name(name) for name in distributions[module]}
        # packages that share a namespace, such as opentelemetry
        found = (
            (names & declared) or (names & optional) or {PART_OF_ANOTHER.get(min(names), min(names))}
        )
        used |= found
    assert used - optional == declared - NOT_IMPORTED


def test_every_version_is_pinned() -> None:
    """All that an installation for development brings, and no more, is in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {_name(pin.name) for pin in pins if pin.marker is None or pin.marker.evaluate()}
    assert pinned == _installed("hango", {"dev", "embedded", "testing"}) - {"hango"}


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported() -> set[str]:
    found: set[str] = set()
    for file in (ROOT / "hango").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            found |= {module.partition(".")[0] for module in _modules(node)}
    return found - sys.stdlib_module_names - {"hango"}


def _modules(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module


def _installed(distribution: str, extras: set[str]) -> set[str]:
    """Return the names of a distribution and of all that it requires, in this environment."""
    found, waiting = set[str](), [(_name(distribution), frozenset(extras))]
    seen = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found.add(name)
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
                waiting.append((_name(requirement.name), frozenset(requirement.extras)))
    return found
