"""The pages that say which test proves what are complete, and name tests that are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import pytest

TESTS = Path(__file__).parents[1]
REFERENCE = TESTS.parent / "docs" / "reference"
PAGES = ("faults.md", "seed-criteria.md")

# every fault that is known, by its area; the numbers have gaps
FAULTS = {
    "A": "01 02 04 05 06 07 09 10 11 12 13 14 15 16 17",
    "B": "02 03 04 06 07 08 09 10 12 13 14 15 16 17 18",
    "C": "01 04 05 07 08 09 10 11 12 13",
    "D": "01 03 04 08 09 10 11 12 13 14 15 16 17 18 19",
    "E": "01 02 03 04 06 07 08 09 11 12 14 15",
    "F": "01 02 04 05 06 08 09 10 11",
    "G": "01 02 04 06",
    "H": "02 03 04 05",
}
# faults found by reviewing and attacking hango itself
REVIEWED = re.compile(r"[RSW]-[FHML]\d{1,2}|N\d\d|P\d{1,2}")
WAITS = {"telemetry", "event streaming"}


@attrs.frozen
class Line:
    """A line of a table.

    Attributes:
        what: all but the last cell.
        tests: as ``file::test``, may be empty.
        waits: for which parts of hango, may be empty.
    """

    what: str
    tests: tuple[str, ...]
    waits: tuple[str, ...]

    @property
    def id(self) -> str:
        """The first cell."""
        return self.what.partition(" | ")[0]


def lines(page: str) -> Iterator[Line]:
    """Yield the lines of a page's tables, without their heads."""
    text = (REFERENCE / page).read_text("utf-8")
    for cells in re.findall(r"^\| (.*) \|$", text, re.MULTILINE):
        what, _, proofs = cells.rpartition(" | ")
        if proofs != "proven by":
            named = tuple(re.findall(r"`([^`]*)`", proofs))
            yield Line(what, named, tuple(re.findall(r"waits: ([a-z ]+)", proofs)))


@cache
def defined_in(file: str) -> frozenset[str]:
    """Return the names of the tests in a file; none if there is no such file."""
    path = TESTS / file
    tree = ast.parse(path.read_text("utf-8") if path.is_file() else "")
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_every_fault_has_a_line() -> None:
    """Each known fault is there, once, in order; after them those found by reviewing hango."""
    known = [f"{area}{number}" for area, numbers in FAULTS.items() for number in numbers.split()]
    listed = [line.id for line in lines("faults.md")]
    assert listed[: len(known)] == known
    assert [it for it in listed[len(known) :] if not REVIEWED.fullmatch(it)] == []
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("page", PAGES)
def test_every_line_names_tests_that_are_there_or_what_it_waits_for(page: str) -> None:
    """A line without a test says what it waits for; a test that was renamed or removed is missed."""
    listed = list(lines(page))
    assert listed
    assert [line.what for line in listed if not line.tests and not line.waits] == []
    assert {part for line in listed for part in line.waits} <= WAITS
    named = {test for line in listed for test in line.tests}
    gone = {
        test for test in named if test.partition("::")[2] not in defined_in(test.partition("::")[0])
    }
    assert gone == set()


def test_tests_that_prove_a_fault_say_so() -> None:
    """Of the tests of a fault at least one names it in its file, so that whoever changes it knows."""
    silent = [
        line.what
        for line in lines("faults.md")
        if not line.waits and not any(names_fault(test, line.id) for test in line.tests)
    ]
    assert silent == []


def names_fault(test: str, fault: str) -> bool:
    """Whether the file of *test*, or a table beside it, names *fault*."""
    path = TESTS / test.partition("::")[0]
    tables = path.parent.glob("*/*.py") if path.parent.name == "conformance" else ()
    return any(fault in file.read_text("utf-8") for file in (path, *tables))
