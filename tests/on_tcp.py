"""Run the suite against a Postgres over TCP with a password, as most installations have it.

The other runs use the embedded server over a Unix socket; what differs (resets, half-open connections,
authentication, an older major version) shows only here.

    python tests/on_tcp.py [--half 0|1] [PYTEST ARGUMENT ...]

The programs are those of ``HANGO_TEST_PG_BINDIR``, else of Postgres 15 where Debian puts it, else the
embedded ones.  ``--half`` takes every second test file, so that two runs cover all of them.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hango.embedded.binaries import Installation, find_installation
from hango.embedded.os_user import OsUser, choose_os_user
from hango.testing.databases import SERVER_SETTING

TESTS = Path(__file__).parent
DEBIAN = Path("/usr/lib/postgresql/15/bin")
# May lose everything in a power cut, as every test server; room for what tests open at once.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}


def main() -> int:
    """Run pytest; return its exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--half", type=int, choices=(0, 1))
    options, arguments = parser.parse_known_args()
    files = [] if options.half is None else _test_files()[options.half :: 2]
    with _server() as url:
        command = [sys.executable, "-m", "pytest", *map(str, files), *arguments]
        return subprocess.run(command, env={**os.environ, SERVER_SETTING: url}, check=False).returncode


def _test_files() -> list[Path]:
    """Return the files that `make test` runs, in a fixed order; the peers have a run of their own."""
    return sorted(path for path in TESTS.rglob("test_*.py") if "peers" not in path.parts)


@contextmanager
def _server() -> Iterator[str]:
    """Have a server; yields a superuser's URL."""
    folder = Path(tempfile.mkdtemp(prefix="hango-tcp-"))
    cluster = folder / "postgres"
    account = choose_os_user(cluster, folder)
    account.own(folder)
    installation = find_installation(_bindir(), account, cluster)
    password = secrets.token_urlsafe(12)
    try:
        _initialize(cluster, installation, account, password)
        port = _free_port()
        settings = " ".join(f"-c {name}={value}" for name, value in (SETTINGS | {"port": port}).items())
        start = ["start", "--wait", f"--options={settings}", f"--log={folder / 'log'}"]
        _run(account, installation, "pg_ctl", f"--pgdata={cluster}", *start)
        try:
            yield f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
        finally:
            _run(account, installation, "pg_ctl", f"--pgdata={cluster}", "stop", "--mode=immediate")
    finally:
        shutil.rmtree(folder)


def _bindir() -> Path | None:
    named = os.environ.get("HANGO_TEST_PG_BINDIR")
    return Path(named) if named else DEBIAN if DEBIAN.is_dir() else None


def _initialize(cluster: Path, installation: Installation, account: OsUser, password: str) -> None:
    secret = cluster.parent / "password"
    secret.write_text(password)
    account.own(secret)
    how = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
    what = ["--encoding=UTF8", "--locale=C", "--no-instructions"]
    _run(account, installation, "initdb", f"--pgdata={cluster}", *how, *what)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(account: OsUser, installation: Installation, program: str, *arguments: str) -> None:
    done = account.run([installation.bindir / program, *arguments], library_path=installation.libraries)
    if done.returncode:
        sys.exit(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    sys.exit(main())
