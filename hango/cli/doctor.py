"""`hango doctor`: whether what is stored is as it must be, on a live database."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import attrs
import click

from hango import app
from hango.cli.common_options import as_json, start
from hango.config import LogLevel
from hango.store import Stores
from hango.store.invariants import STUCK_AFTER, Violation, check

FOUND = 1

# Seconds.  The doctor holds no lease, and the patience of its statements is made of one: the most.
_LEASE = 3600.0


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Check the invariants of everything stored; exit with 1 if one is violated.

    Changes nothing, and may run while the database is being worked on.  Prints a line for each
    violation: what it is about, the session, the run if it is one's, and what was found.
    """
    settings = start(LogLevel.WARNING)
    # a lease may lapse right after a sweep, and the next one may be slow
    stuck_after = max(STUCK_AFTER, 2 * settings.run_reclaim_interval)

    async def look(stores: Stores) -> Sequence[Violation]:
        return await check(stores.pool, stuck_after=stuck_after)

    found = app.with_stores(attrs.evolve(settings, run_lease_ttl=_LEASE), look)
    _print(found, as_json=as_json)
    if found:
        sys.exit(FOUND)


def _print(found: Sequence[Violation], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"data": [attrs.asdict(violation) for violation in found]}, default=str))
        return
    for violation in found:
        run = f" run {violation.run_id}" if violation.run_id else ""
        click.echo(f"{violation.check}: session {violation.session_id}{run}: {violation.what}")
    if not found:
        click.echo("no violations")
