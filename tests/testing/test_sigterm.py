"""Tests that are told to end, as by a time limit, leave no server behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from hango.db.pool import open_pool
from hango.errors import StoreUnavailable

CONFTEST = 'pytest_plugins = ["hango.testing.plugin"]\n'
TESTS = """
import trio

async def test_long(hango_database):
    print("at", hango_database, flush=True)
    await trio.sleep(600)

async def test_another():
    print("one more")
"""
COMMAND = (sys.executable, "-m", "pytest", "-s", "-o", "trio_mode=true", "-p", "no:cacheprovider")


async def ping(url: str) -> None:
    """Ask whether there is a database."""
    async with open_pool(url, size=1) as pool:
        await pool.ping(deadline=10)


def test_a_session_told_to_end_stops_its_server(tmp_path: Path) -> None:
    """SIGTERM is as good as Ctrl-C: no further test begins, and the session's Postgres is stopped."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_long.py").write_text(TESTS)
    own = {name: value for name, value in os.environ.items() if name != "HANGO_TEST_DATABASE_URL"}
    with subprocess.Popen(COMMAND, cwd=tmp_path, env=own, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout
        at = next(line for line in session.stdout if "postgresql://" in line)
        url = at.split()[-1]
        trio.run(ping, url)
        session.send_signal(signal.SIGTERM)
        assert "one more" not in session.stdout.read()
    assert session.returncode
    with pytest.raises(StoreUnavailable):
        trio.run(ping, url)
