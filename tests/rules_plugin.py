"""A pytest plug-in: `pytest --rules` lists the rules of the design and the tests that prove each.

Its one rule: a test names only rules there are, so a typing error in a mark stops the run.
Loaded by ``tests/conftest.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

RULES = (
    "One claimer gets a run; the others make no provider call",
    "One running run per session across processes, in the order of the line",
    "Every write of an executor is fenced by owner and epoch, with the row's lock",
    "Lease time is the database's; the local deadline is earlier, and loss is noticed at once",
    "The sweep takes lapsed runs back, all of them, and ends those that only crash",
    "Notifications are hints: what one misses, a poll finds",
    "A turn's results and its boundary are one statement; so are last message and end",
    "A resumed run never repeats a finished turn and never requests an answer twice",
    "A tool is run again only as its effects allow",
    "Iterations, usage and the cap belong to the run, the deadline to one execution",
    "A cancel ends a run wherever it is, once, and keeps what had arrived",
    "Rights are read again at each claim: they are today's",
    "One predicate decides what is visible; what is not looks unknown",
    "What is sent to a provider is valid for the strictest API",
    "Complete calls mean the turn goes on, whatever the label; unknown stops fail",
    "A broken stream keeps what arrived and fails; errors before content are retried",
    "At the iteration cap the run fails with a message that explains it",
    "A tool call that cannot be done is an error result, and the loop goes on",
    "A slow tool blocks nobody; calls of a turn run together, bounded, in order",
    "Every stored or sent text passes one codec",
    "A result has a text for the model and one for people; an error says something",
    "http_fetch reaches allowed public hosts only, bounded in time and size",
    "Guardrails come before each call; the first denial wins, and failing is denying",
    "A gate judges finished work, bounded; nothing stops silently",
    "The todo gate judges the last successful list, and clearing it is no completion",
    "No connection held across a provider call, no stray task, no gap, no orphan",
    "What is foreign has a border: its errors cost one connection or one run, and nothing else",
    "An executor's database work never waits behind a reader",
    "Everything has a bound, and no foreign text holds the event loop",
    "What the database must be is pinned when connecting, or checked at start",
    "A cursor of live events is a position in the content",
    "What has ended can be deleted, pruned by age, and exported before",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rules``."""
    parser.addoption(
        "--rules", action="store_true", help="list the rules of the design and their tests"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Refuse a mark that names no rule."""
    for item in items:
        for mark in item.iter_markers("rule"):
            if mark.kwargs or not mark.args or not set(mark.args) <= set(range(1, len(RULES) + 1)):
                raise pytest.UsageError(f"{item.nodeid}: no such rule: {mark.args}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """List instead of running, when asked to."""
    if not session.config.option.rules or session.testsfailed:
        return None
    for line in listing(session.items):
        session.config.get_terminal_writer().line(line)
    return True


def listing(items: Iterable[pytest.Item]) -> list[str]:
    """Return the lines: each rule, below it its tests; one entry for all cases of a test."""
    proofs: dict[int, dict[str, None]] = {number: {} for number in range(1, len(RULES) + 1)}
    for item in items:
        for mark in item.iter_markers("rule"):
            for number in mark.args:
                proofs[number][item.nodeid.partition("[")[0]] = None
    lines = []
    for number, tests in proofs.items():
        lines.append(f"{number:2}. {RULES[number - 1]}")
        lines += [f"      {test}" for test in tests] or ["      (no test)"]
    unproven = sum(not tests for tests in proofs.values())
    return [*lines, f"{len(RULES) - unproven} of {len(RULES)} rules have a test."]
