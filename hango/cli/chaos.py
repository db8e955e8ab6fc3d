"""`hango chaos`: hango under deliberate failure, on a database of its own."""

from __future__ import annotations

import os
import sys

import click

# Not imported: what hango is tested with knows nothing of the command line, nor the other way round.
_ENGINE = "hango.chaos"


@click.command()
@click.option("--seed", type=int, required=True, help="The same seed, the same blows and runs.")
@click.option("--seconds", type=click.IntRange(1, 3600), required=True, help="How long to disturb.")
@click.option("--workers", type=click.IntRange(1, 16), default=4, show_default=True, metavar="K")
def chaos(seed: int, seconds: int, workers: int) -> None:
    """Disturb worker processes and their Postgres, and check that nothing is lost or done twice.

    On a private database, gone afterwards; yours is not touched.  Runs are put on it while workers
    are killed (at least one a second), frozen for longer than a lease and drained, Postgres is
    stopped and started, and doorbells are lost.  Then all runs are finished in peace, and the
    database and a journal of what the tools did are checked.

    Prints a line each, name and value: runs, kills, pauses, restarts, reclaims, redriven_turns,
    rejected_writes, violations.  Progress and violations go to standard error.

    Exit codes: 0 nothing violated, 1 something was, 2 wrong usage or settings.
    """
    words = ["--seed", str(seed), "--seconds", str(seconds), "--workers", str(workers)]
    os.execv(sys.executable, [sys.executable, "-m", _ENGINE, *words])  # noqa: S606  # itself, no shell
