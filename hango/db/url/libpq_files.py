"""Two files of libpq's: passwords (``~/.pgpass``) and services (``~/.pg_service.conf``).

asyncpg reads both; but not a password in which a colon or a backslash is escaped.
"""

from __future__ import annotations

import configparser
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from hango.db.url.endpoints import Endpoint
from hango.errors import ConfigError

_FIELD = re.compile(r"((?:[^:\\]|\\.)*)(?::|$)")
_FIELDS = 4  # host, port, database, user; the password is the rest of the line


def find_password(
    file: str | None, endpoints: Iterable[Endpoint], database: str, user: str
) -> str | None:
    """Return the password of the first line that fits one of *endpoints*; None when there is none.

    Args:
        file: the password file; None for ``~/.pgpass``.
        endpoints: where to connect.
        database: what to connect to.
        user: as whom.
    """
    lines = _read_lines(Path(file) if file else _at_home(".pgpass"))
    for endpoint in endpoints:
        wanted = (
            "localhost" if endpoint.is_socket else endpoint.host,
            str(endpoint.port),
            database,
            user,
        )
        for *fields, password in lines:
            if all(field in ("*", value) for field, value in zip(fields, wanted, strict=True)):
                return password
    return None


def _read_lines(file: Path | None) -> list[list[str]]:
    """Read a password file; one that others may read is passed over, as libpq does."""
    try:
        if file is None or file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return []
        text = file.read_text("utf-8", errors="replace")
    except OSError:
        return []
    lines = [_split(line) for line in text.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if len(line) > _FIELDS]


def _split(line: str) -> list[str]:
    fields = []
    for _ in range(_FIELDS + 1):
        match = _FIELD.match(line)
        if match is None or not line:
            return []
        fields.append(re.sub(r"\\(.)", r"\1", match[1]))
        line = line[match.end() :]
    return fields


def read_service(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a service.

    Raises:
        ConfigError: there is no such service, or no file.
    """
    named = environ.get("PGSERVICEFILE")
    file = Path(named) if named else _at_home(".pg_service.conf")
    services = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        services.read_string(file.read_text("utf-8") if file else "")
        return dict(services[name])
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
        raise ConfigError((f"service: {name[:60]!r} is not in {file or 'a service file'}",)) from None


def _at_home(name: str) -> Path | None:
    try:
        return Path.home() / name
    except (RuntimeError, KeyError):
        return None
