"""Commands for operators: `hango migrate`, `doctor`, `ps`, `config check` and `chaos`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import attrs
import click
import trio

from hango import app
from hango.cli.common_options import as_json, start
from hango.codec import time_to_json
from hango.config import LogLevel, effective
from hango.db import migrations
from hango.store import Stores
from hango.store.invariants import STUCK_AFTER, Violation, check
from hango.store.processes import Processes, SeenProcess

VIOLATIONS_FOUND = 1  # exit code of `hango doctor`

# Seconds.  Statement timeouts are derived from the lease; doctor reads much and holds no lease.
_DOCTOR_LEASE = 3600.0
# A module to run, not to import: the command line must not depend on what tests it.
_CHAOS = "hango.chaos"


@click.command()
@click.option("--status", is_flag=True, help="Only list the migrations; change nothing.")
@as_json
def migrate(*, status: bool, as_json: bool) -> None:
    """Apply missing migrations, and list all with the time each was applied.

    Every command that opens the database applies them first; this one does nothing else.
    """
    with app.open_database(start(LogLevel.WARNING)) as dsn:
        applied = () if status else trio.run(migrations.migrate, dsn)
        known = trio.run(migrations.migration_status, dsn)
    rows = [{"name": row.name, "applied_at": time_to_json(row.applied_at)} for row in known]
    if as_json:
        click.echo(json.dumps({"data": rows}))
        return
    for row in rows:
        now = "  (now)" if row["name"] in applied else ""
        click.echo(f"{row['name']}  {row['applied_at'] or 'pending'}{now}")


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Check the invariants of everything stored; exit with 1 if one is violated.

    Changes nothing, and may run while the database is in use.  Prints a line for each violation:
    which check failed, the session, the run if there is one, and what was found.
    """
    settings = start(LogLevel.WARNING)
    # a lease may lapse right after a sweep, and the next one may be slow
    stuck_after = max(STUCK_AFTER, 2 * settings.run_reclaim_interval)

    async def look(stores: Stores) -> Sequence[Violation]:
        return await check(stores.pool, stuck_after=stuck_after)

    found = app.with_stores(attrs.evolve(settings, run_lease_ttl=_DOCTOR_LEASE), look)
    _print(found, as_json=as_json)
    if found:
        click.get_current_context().exit(VIOLATIONS_FOUND)


def _print(found: Sequence[Violation], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"data": [attrs.asdict(violation) for violation in found]}, default=str))
        return
    for violation in found:
        run = f" run {violation.run_id}" if violation.run_id else ""
        click.echo(f"{violation.check}: session {violation.session_id}{run}: {violation.what}")
    if not found:
        click.echo("no violations")


@click.command()
@click.option("--hours", type=float, default=24.0, show_default=True, help="How far back to look.")
@as_json
def ps(*, hours: float, as_json: bool) -> None:
    """List the processes of the database: the id that runs have as owner, host, pid and role.

    A process that is gone ended without saying so; its runs are taken back when their leases lapse.
    """

    async def look(stores: Stores) -> Sequence[SeenProcess]:
        return await Processes(stores.pool).list(hours=hours)

    found = app.with_stores(start(LogLevel.WARNING), look)
    if as_json:
        click.echo(json.dumps({"data": [attrs.asdict(process) for process in found]}, default=str))
        return
    for process in found:
        state = "alive" if process.alive else "ended" if process.ended_at else "gone"
        click.echo(
            f"{process.id} {state} {process.role} host {process.host} pid {process.pid} runs"
            f" {process.running}/{process.workers} since {time_to_json(process.started_at)}"
            f" last seen {time_to_json(process.beat_at)} hango {process.version}"
        )


@click.group()
def config() -> None:
    """Settings: the HANGO_* and OPENAI_* environment variables."""


@config.command("check")
@as_json
def check_config(*, as_json: bool) -> None:
    """List every setting with its value, secrets hidden; exit with 2 if one is invalid.

    Also imports the plug-ins and makes their providers, so that a mistake in one shows here.
    Warnings go to standard error.
    """
    settings = start(LogLevel.WARNING)
    app.load_plugins(settings).made_providers()
    values = effective(settings)
    if as_json:
        click.echo(json.dumps({"settings": dict(values), "warnings": settings.warnings}))
        return
    for name, value in values.items():
        click.echo(f"{name}={value}")


@click.command()
@click.option("--seed", type=int, required=True, help="The same seed, the same faults.")
@click.option("--seconds", type=click.IntRange(1, 3600), required=True, help="How long to run.")
@click.option("--workers", type=click.IntRange(1, 16), default=4, show_default=True, metavar="K")
def chaos(seed: int, seconds: int, workers: int) -> None:
    """Inject faults into worker processes and their Postgres, then check that nothing was lost.

    Uses a private database, deleted afterwards; yours is not touched.  While runs are executed,
    workers are killed (at least one a second), paused for longer than a lease and drained; Postgres
    is stopped and started, cut off, and full; and another tenant floods queue and API and has runs
    whose model and tools block, exit or ignore their cancellation.  Then the faults stop, all runs
    finish, and the database and a journal of what the tools did are checked.

    Prints one name and value a line: runs, kills, pauses, restarts, reclaims, redriven_turns,
    rejected_writes, violations.  Progress and violations go to standard error.

    Exit codes: 0 no violation, 1 violations, 2 wrong usage or settings.
    """
    words = ["--seed", str(seed), "--seconds", str(seconds), "--workers", str(workers)]
    os.execv(sys.executable, [sys.executable, "-m", _CHAOS, *words])  # noqa: S606 - itself, no shell
