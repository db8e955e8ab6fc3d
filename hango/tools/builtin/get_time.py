"""get_time: the current time in a time zone.

Safe to re-execute: it reads a clock.  The answer is later the second time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from typing import Annotated

from pydantic import Field

from hango.domain import Effects, Result
from hango.time_zones import load_zone, zone_names
from hango.tools.tool import Tool, tool

MAX_SUGGESTIONS = 3
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_OFFSET = re.compile(
    r"(?:utc|gmt|z)?\s*(?P<sign>[+-])\s*(?P<hours>[0-9]{1,2})(?P<minutes>:?[0-9]{2})?", re.IGNORECASE
)
_MAX_ETC = {"+": 14, "-": 12}  # hours ahead and behind that have a zone of their own


def make_get_time(clock: Callable[[], datetime] | None = None) -> Tool:
    """Make the tool.

    Args:
        clock: returns the instant that is now, with its zone; None for the wall clock.
    """
    now = clock or (lambda: datetime.now(UTC))
    zones()  # a process without its zones does not start

    @tool(effects=Effects.READ_ONLY)
    async def get_time(timezone: Annotated[str, Field(max_length=100)] = "UTC") -> Result:
        """Return the current date and time, with the offset from UTC and the day of the week.

        Args:
            timezone: An IANA name such as Europe/Paris or America/New_York; upper and lower case do not
                matter.  Offsets such as UTC+3 are not names.
        """
        name = zones().get(timezone.casefold())
        if name is None:
            return Result(_refusal(timezone), is_error=True)
        return Result(_written(now(), name))

    return get_time


def _written(instant: datetime, name: str) -> str:
    """Return *instant* in a zone, always with its offset, since an hour may occur twice."""
    local = instant.astimezone(load_zone(name))
    return f"{local.isoformat(timespec='seconds')} ({name}, {_DAYS[local.weekday()]})"


@cache
def zones() -> Mapping[str, str]:
    """Return the IANA names by their case-folded form."""
    return {name.casefold(): name for name in zone_names()}


# --- refusals -------------------------------------------------------------------------------


def _refusal(text: str) -> str:
    """Return why *text* is not a zone, and what was probably meant."""
    if offset := _OFFSET.fullmatch(text.strip()):
        return f"{text!r} is an offset, not an IANA time zone; {_offset_hint(offset)}"
    meant = _suggestions(text)
    hint = f"did you mean {' or '.join(meant)}?" if meant else "use a name such as Europe/Paris."
    return f"{text!r} is not an IANA time zone; {hint}"


def _offset_hint(offset: re.Match[str]) -> str:
    sign, hours = offset["sign"], int(offset["hours"])
    if (offset["minutes"] or "00").endswith("00") and 0 < hours <= _MAX_ETC[sign]:
        inverted = "-" if sign == "+" else "+"
        return (
            f"name a place, such as Europe/Paris, or use Etc/GMT{inverted}{hours} for UTC{sign}{hours} "
            "(the sign in these names is the other way round)."
        )
    return "name a place, such as Europe/Paris, or use UTC."


def _suggestions(text: str) -> list[str]:
    """Return the zones whose city or whole name is *text*, or nearly so."""
    wanted = "_".join(text.casefold().strip(" \"'").split())
    cities: dict[str, list[str]] = {}
    for folded, name in zones().items():
        cities.setdefault(folded.rpartition("/")[2], []).append(name)
    if exact := cities.get(wanted.rpartition("/")[2]):
        return exact[:MAX_SUGGESTIONS]
    near = get_close_matches(wanted, zones(), MAX_SUGGESTIONS, 0.8)
    if near:
        return [zones()[folded] for folded in near]
    return [cities[city][0] for city in get_close_matches(wanted, cities, MAX_SUGGESTIONS, 0.8)]
