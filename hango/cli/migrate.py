"""`hango migrate`: bring the database's schema up to date, or tell how far it is."""

from __future__ import annotations

import json

import click
import trio

from hango import app
from hango.cli.common_options import as_json, start
from hango.codec import time_to_json
from hango.config import LogLevel
from hango.db import migrations


@click.command()
@click.option("--status", is_flag=True, help="Change nothing.")
@as_json
def migrate(*, status: bool, as_json: bool) -> None:
    """Apply the migrations the database lacks, and list all with the time each was applied.

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
