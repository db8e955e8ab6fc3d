"""What importing hango needs and loads: no POSIX modules, and no web server without serving."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import environment

WEB_SERVER = {"quart", "quart_trio", "hypercorn"}

NO_POSIX = """
import sys
sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios"))  # not found
import hango, hango.config, hango.embedded, hango.testing
print(hango.config.load({}).data_dir)
try:
    with hango.embedded.embedded_postgres():
        pass
except hango.errors.EmbeddedPostgresError as error:
    print(error)
"""

LOADED = f"""
import atexit, sys
atexit.register(lambda: print("loaded:", *sorted({WEB_SERVER} & set(sys.modules)), file=sys.stderr))
from hango.cli import main
main()
"""


def test_hango_can_be_imported_where_there_is_no_posix_module() -> None:
    """F8: on Windows the package works without the embedded Postgres, which says so when asked for."""
    done = _python(NO_POSIX)
    assert done.returncode == 0, done.stderr
    folder, message = done.stdout.splitlines()
    assert Path(folder).is_absolute()
    assert "needs Linux or macOS" in message
    assert "Set HANGO_DATABASE_URL" in message


@pytest.mark.parametrize("words", [("--help",), ("run", "hello")])
def test_a_command_that_does_not_serve_loads_no_web_server(
    database: str, words: tuple[str, ...]
) -> None:
    """A run on the command line starts fast, and works where no web server is installed."""
    done = _python(LOADED, *words, HANGO_DATABASE_URL=database)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "loaded:"


def _python(code: str, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment(**settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
