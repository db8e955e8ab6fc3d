"""`python -m hango.chaos`: what `hango chaos` becomes; see there for what is printed."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import attrs
import trio

from hango import config
from hango.chaos.scenario import Options, Result, weather
from hango.chaos.server import SETTINGS, Server
from hango.embedded import embedded_postgres
from hango.errors import ConfigError, EmbeddedPostgresError

VIOLATED, USAGE = 1, 2


def main() -> int:
    """Go through a storm; return the exit code."""
    options = _options()
    # as Ctrl-C, so that what was started is stopped
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        bindir = config.load(os.environ).pg_bindir
        return _report(*_in_a_folder(options, bindir))
    except ConfigError as error:
        _tell(*error.problems)
        return USAGE
    except EmbeddedPostgresError as error:
        _tell(str(error))
        return VIOLATED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="hango chaos")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--workers", type=int, required=True)
    return Options(**vars(parser.parse_args()))


def _in_a_folder(options: Options, bindir: Path | None) -> tuple[Result, Path]:
    """Return what came of it, and the folder it was in: left there if that is of interest."""
    folder = Path(tempfile.mkdtemp(prefix="hango-chaos-")).resolve()
    # Postgres may have to run as somebody else, who has to get through to its own folder
    folder.chmod(0o711)
    result = None
    try:
        result = _weather(options, folder, bindir)
    finally:
        if result is None or not result.violations:
            shutil.rmtree(folder)
    return result, folder


def _weather(options: Options, folder: Path, bindir: Path | None) -> Result:
    data_dir = folder / "data"
    with embedded_postgres(data_dir, bindir, SETTINGS) as dsn:
        return trio.run(_until_told, options, folder, Server(data_dir, bindir, dsn))


async def _until_told(options: Options, folder: Path, server: Server) -> Result:
    """Do it, or stop in order when a signal says so.

    Raises:
        KeyboardInterrupt: one did.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_at_signal, nursery.cancel_scope)
        result = await weather(options, folder, server, _tell)
        nursery.cancel_scope.cancel()
        return result
    raise KeyboardInterrupt


async def _stop_at_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        await anext(signals)
        scope.cancel()


def _report(result: Result, folder: Path) -> int:
    numbers = {**attrs.asdict(result), "violations": len(result.violations)}
    for name, value in numbers.items():
        print(name, value)  # noqa: T201 - the answer
    for violation in result.violations:
        _tell(f"violation: {violation}")
    if result.violations:
        _tell(f"the journal, the logs and the database are left in {folder}")
        return VIOLATED
    return 0


def _tell(*lines: str) -> None:
    for line in lines:
        print(f"hango: {line}", file=sys.stderr, flush=True)  # noqa: T201 - what is not the answer


if __name__ == "__main__":
    sys.exit(main())
