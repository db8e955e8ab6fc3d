"""Parsers of settings: from the text of a variable to a value, and back.

Parsers raise ValueError with the expected format; secrets never appear in messages or output.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import attrs

from hango.db.url import DatabaseUrl
from hango.errors import ConfigError, InvalidInput
from hango.tools import AllowedHosts

T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# seconds; far from where an interval or a clock overflows
_MAX_DURATION = 30 * 24 * 3600.0
_HIGHEST_PORT = 65535


@attrs.frozen
class Parser(Generic[T]):
    """Reads and writes one type of value.

    Attributes:
        read: turns text into a value; raises ValueError with the expected format.
        show: turns a value into text for people; hides secrets.
    """

    read: Callable[[str], T]
    show: Callable[[T], str] = str


TEXT = Parser(str)


def duration(least: float) -> Parser[float]:
    """Read seconds, from *least* to thirty days, written with their unit."""

    def read(text: str) -> float:
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?(ms|s|m|h)", text, re.ASCII)
        if match is None:
            raise ValueError(f"{text!r} is not a duration such as 500ms, 90s, 2m or 1h")
        seconds = float(match[1]) * _SECONDS[match[2]]
        if not least <= seconds <= _MAX_DURATION:
            bounds = f"{show_duration(least)} to {show_duration(_MAX_DURATION)}"
            raise ValueError(f"{text!r} is outside {bounds}")
        return seconds

    return Parser(read, show_duration)


def show_duration(seconds: float) -> str:
    """Write seconds in the largest unit that leaves no fraction."""
    for unit in ("h", "m", "s"):
        count = seconds / _SECONDS[unit]
        if count >= 1 and math.isclose(count, round(count), rel_tol=1e-12):
            return f"{round(count)}{unit}"
    return f"{seconds:.9g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:.9g}ms"


def size(least: int, most: int) -> Parser[int]:
    """Read bytes, written with their unit."""

    def read(text: str) -> int:
        match = re.fullmatch(r"(\d{1,15}) ?(B|KiB|MiB|GiB)", text, re.ASCII)
        if match is None:
            raise ValueError(f"{text!r} is not a size such as 512B, 64KiB or 1MiB")
        number = int(match[1]) * _BYTES[match[2]]
        if not least <= number <= most:
            raise ValueError(f"{text!r} is outside {_show_size(least)} to {_show_size(most)}")
        return number

    return Parser(read, _show_size)


def _show_size(number: int) -> str:
    unit = next(unit for unit in reversed(_BYTES) if number % _BYTES[unit] == 0)
    return f"{number // _BYTES[unit]}{unit}"


def number(least: int, most: int) -> Parser[int]:
    """Read a whole number within bounds, both included."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return Parser(read)


def choice(choices: type[Choice]) -> Parser[Choice]:
    """Read one of the values of an enum, in upper or lower case."""

    def read(text: str) -> Choice:
        try:
            return choices(text.lower())
        except ValueError:
            raise ValueError(f"{text!r} must be one of {', '.join(choices)}") from None

    return Parser(read)


def _read_modules(text: str) -> tuple[str, ...]:
    modules = _split(text)
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ValueError(f"{module!r} is not the name of a module, such as my_company.tools")
    return modules


def _split(text: str) -> tuple[str, ...]:
    return tuple(filter(None, re.split(r"[,\s]+", text)))


MODULES = Parser(_read_modules, ",".join)


def _read_hosts(text: str) -> tuple[str, ...]:
    hosts = _split(text)
    try:
        AllowedHosts.parse(hosts)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return hosts


HOSTS = Parser(_read_hosts, ",".join)


def _read_flag(text: str) -> bool:
    words = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in words:
        raise ValueError(f"{text!r} must be true or false")
    return words[text.lower()]


FLAG = Parser(_read_flag, lambda value: str(value).lower())


def _read_path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"{text!r} names the home of an unknown user") from None


PATH = Parser(_read_path)


def _read_bind(text: str) -> str:
    match = re.fullmatch(r"unix:/.+|(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})", text, re.ASCII)
    if match is None or int(match[1] or 0) > _HIGHEST_PORT:
        raise ValueError(f"{text!r} is not host:port, [v6 address]:port or unix:/path")
    return text


BIND = Parser(_read_bind)


def is_local(bind: str) -> bool:
    """Return whether only this machine reaches *bind*: a Unix socket, or a loopback address."""
    host = bind.rpartition(":")[0].strip("[]")
    if host == "localhost" or bind.startswith("unix:"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name, of any address


def _show_url(url: str) -> str:
    # Up to the last @: a password may hold one itself.  The query can carry a secret as well.
    hidden = re.sub(r"(?<=//)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)([?&][^=&]*(?:password|key|token|secret)=)[^&]*", r"\1***", hidden)


def _read_database(text: str) -> str:
    try:
        DatabaseUrl.parse(text)
    except ConfigError as error:
        raise ValueError("; ".join(error.problems)) from None
    return text


DATABASE = Parser(_read_database, _show_url)


def _read_api_key(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("contains a space, a line break or another character that no key has")
    return text


API_KEY = Parser(_read_api_key, lambda _: "***")


def _read_base_url(text: str) -> str:
    try:
        port = urlsplit(text).port
    except ValueError:
        port = 0
    if port == 0 or not re.fullmatch(r"https?://[^/\s]\S*", text):
        raise ValueError("not a URL such as https://api.openai.com/v1")
    return text


BASE_URL = Parser(_read_base_url, _show_url)
