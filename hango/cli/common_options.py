"""How every command starts: settings, log, warnings; and how it prints an object.

Used by the other files of the command line only.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping

import click

from hango.config import LogLevel, Settings, load
from hango.domain import JsonObject
from hango.telemetry import logs

_log = logging.getLogger(__name__)

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def start(level: LogLevel, overrides: Mapping[str, str | None] | None = None) -> Settings:
    """Read the settings and set up the log; warnings about the settings go there.

    Args:
        level: the least severe log line this command writes, unless a setting says otherwise.
        overrides: what options of the command say, by the name of the setting; None says nothing.

    Raises:
        ConfigError: the settings cannot be used.
    """
    said = {name: value for name, value in (overrides or {}).items() if value is not None}
    settings = load({**os.environ, **said})
    logs.set_up(style=settings.log_format.value, level=settings.log_level or level)
    for warning in settings.warnings:
        _log.warning(warning)
    return settings


def show(found: JsonObject, *, as_json: bool) -> None:
    """Print an object: as JSON, or a line for each key that has a value."""
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    for key, value in found.items():
        if value not in (None, "", [], {}):
            click.echo(f"{key}: {value if isinstance(value, str) else json.dumps(value)}")
