"""The command ``python -m hango.chaos``, which `hango chaos` becomes; see there for its output."""

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
from hango.chaos.faults import GROUPS, FaultKind
from hango.chaos.postgres import SETTINGS, PrivatePostgres
from hango.chaos.scenario import Options, Result, run_scenario
from hango.embedded import embedded_postgres
from hango.errors import ConfigError, EmbeddedPostgresError

VIOLATED, USAGE = 1, 2


def main() -> int:
    """Run a scenario; return the exit code."""
    options = _options()
    # as Ctrl-C, so that what was started is stopped
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        bindir = config.load(os.environ).pg_bindir
        return _print_result(*_run_in_folder(options, bindir))
    except ConfigError as error:
        _report(*error.problems)
        return USAGE
    except EmbeddedPostgresError as error:
        _report(str(error))
        return VIOLATED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="hango chaos")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--faults", type=_parse_faults, default=frozenset(FaultKind))
    return Options(**vars(parser.parse_args()))


def _parse_faults(text: str) -> frozenset[FaultKind]:
    """Read names of kinds and of groups of kinds, with commas."""
    return frozenset().union(*(GROUPS.get(word) or {FaultKind(word)} for word in text.split(",")))


def _run_in_folder(options: Options, bindir: Path | None) -> tuple[Result, Path]:
    """Return the result and its folder, which is kept if there are violations."""
    folder = Path(tempfile.mkdtemp(prefix="hango-chaos-")).resolve()
    # Postgres may run as another user, who has to reach its own folder in it
    folder.chmod(0o711)
    result = None
    try:
        result = _run_on_postgres(options, folder, bindir)
    finally:
        if result is None or not result.violations:
            shutil.rmtree(folder)
    return result, folder


def _run_on_postgres(options: Options, folder: Path, bindir: Path | None) -> Result:
    data_dir = folder / "data"
    with embedded_postgres(data_dir, bindir, SETTINGS) as dsn:
        return trio.run(_run_until_signal, options, folder, PrivatePostgres(data_dir, dsn, bindir))


async def _run_until_signal(options: Options, folder: Path, postgres: PrivatePostgres) -> Result:
    """Run the scenario; stop it in order at SIGINT or SIGTERM.

    Raises:
        KeyboardInterrupt: a signal stopped it.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_at_signal, nursery.cancel_scope)
        result = await run_scenario(options, folder, postgres, _report)
        nursery.cancel_scope.cancel()
        return result
    raise KeyboardInterrupt


async def _cancel_at_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        await anext(signals)
        scope.cancel()


def _print_result(result: Result, folder: Path) -> int:
    numbers = {**attrs.asdict(result), "violations": len(result.violations)}
    for name, value in numbers.items():
        print(name, value)  # noqa: T201 - the output
    for violation in result.violations:
        _report(f"violation: {violation}")
    if result.violations:
        _report(f"the journal, the logs and the database are left in {folder}")
        return VIOLATED
    return 0


def _report(*lines: str) -> None:
    for line in lines:
        print(f"hango: {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress and errors


if __name__ == "__main__":
    sys.exit(main())
