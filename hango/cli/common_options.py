"""What commands share: settings, log and warnings at the start, and printing of JSON objects."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping

import click

from hango.config import LogLevel, Settings, load
from hango.domain import JsonObject
from hango.telemetry import logs
from hango.text import escape_unprintable, printable

_log = logging.getLogger(__name__)

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def start(level: LogLevel, overrides: Mapping[str, str | None] | None = None) -> Settings:
    """Read the settings, set up the log, and log warnings about the settings.

    Args:
        level: the least severe log line this command writes, unless HANGO_LOG_LEVEL is set.
        overrides: values of the command's options, by the name of the setting; None if not given.

    Raises:
        ConfigError: a setting is invalid.
    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    settings = load({**os.environ, **given})
    logs.set_up(style=settings.log_format.value, level=settings.log_level or level)
    for warning in settings.warnings:
        _log.warning(warning)
    return settings


def show(found: JsonObject, *, as_json: bool) -> None:
    """Print an object: as JSON, or a line for each key that has a value."""
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        if value not in (None, "", [], {}):
            click.echo(f"{key}: {printable(value if isinstance(value, str) else json.dumps(value))}")


def print_json(value: JsonObject) -> None:
    """Print *value* as one line of JSON, without characters that a terminal would obey."""
    click.echo(escape_unprintable(json.dumps(value, ensure_ascii=False)))
