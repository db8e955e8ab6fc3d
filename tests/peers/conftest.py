"""When the tests against servers that others wrote are collected.

One rule: a peer test runs against the real server or not at all; it is never skipped.
``HANGO_TEST_PEERS`` is the absolute path of the commands of an environment with ``requirements.txt`` in
it; without it nothing here is collected.  ``make test-peers`` sees to both.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Collect nothing without the servers."""
    is_here = collection_path.is_relative_to(HERE)
    return True if is_here and "HANGO_TEST_PEERS" not in os.environ else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a skipped peer test as failed."""
    report = yield
    if report.skipped and item.path.is_relative_to(HERE):
        report.outcome, report.longrepr = "failed", f"skipped: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how two loops compare."""
    told = [pair for report in terminalreporter.getreports("passed") for pair in report.user_properties]
    counts = Counter(said for name, said in told if name == "two loops")
    if counts:
        terminalreporter.write_line(
            f"two loops: {counts['agree']} scripts agree, {counts['differ']} differ as they should"
        )
