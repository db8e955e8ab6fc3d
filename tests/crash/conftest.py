"""What the crash tests share; and the points they covered, printed at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hango.db.pool import Pool
from hango.testing.plugin import make_seeded_tenant

from support.crash_runs import CrashHarness
from support.fork_server import ForkServer

_COVERED = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def warm() -> Iterator[ForkServer]:
    """Have a warm process to fork others from."""
    forks = ForkServer()
    yield forks
    forks.end()


@pytest.fixture
def forks(warm: ForkServer) -> Iterator[ForkServer]:
    """Have processes; one that a test leaves alive is killed."""
    yield warm
    if warm.pid is not None:
        warm.end()


@pytest.fixture
async def stage(
    database: str, pool: Pool, forks: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CrashHarness:
    """Have a database whose agent is the scripted one, and processes to serve it."""
    return CrashHarness(
        await make_seeded_tenant(pool, provider="scripted"), database, forks, tmp_path, monkeypatch
    )


@pytest.fixture
def covered(request: pytest.FixtureRequest) -> list[str]:
    """Have the lines that are printed at the end."""
    return request.config.stash.setdefault(_COVERED, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the points covered."""
    if lines := terminalreporter.config.stash.get(_COVERED, []):
        terminalreporter.section("points covered")
        for line in lines:
            terminalreporter.line(line)
