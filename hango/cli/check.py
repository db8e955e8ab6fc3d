"""`hango config check`: what the settings come to, before a server is started with them."""

from __future__ import annotations

import json

import click

from hango import app
from hango.cli.common_options import as_json, start
from hango.config import LogLevel, effective


@click.group()
def config() -> None:
    """Settings: the HANGO_* and OPENAI_* variables of the environment."""


@config.command("check")
@as_json
def check(*, as_json: bool) -> None:
    """List every setting with its value, secrets hidden; exit with 2 if one cannot be used.

    Plug-ins are imported too, so that a mistake in one shows here.  Warnings go to standard error.
    """
    settings = start(LogLevel.WARNING)
    app.load_plugins(settings)
    values = effective(settings)
    if as_json:
        click.echo(json.dumps({"settings": dict(values), "warnings": settings.warnings}))
        return
    for name, value in values.items():
        click.echo(f"{name}={value}")
