"""The IANA time zones of the tzdata package.

Always of the package: what a system has installed differs, and so would the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo


@cache
def zone_names() -> Sequence[str]:
    """Return the names of all zones, old ones included."""
    return tuple(files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def current_zone_names() -> frozenset[str]:
    """Return the names in use today: those that ``zone.tab`` lists."""
    lines = files("tzdata").joinpath("zoneinfo", "zone.tab").read_text("utf-8").splitlines()
    return frozenset(line.split("\t")[2] for line in lines if line and not line.startswith("#"))


@cache
def load_zone(name: str) -> ZoneInfo:
    """Return the zone that *name*, one of `zone_names`, stands for."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
