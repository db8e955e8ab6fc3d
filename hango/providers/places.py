"""What the demo model finds in a prompt: cities of the IANA time zone list, and URLs.  Pure.

One rule: the same prompt gives the same finds on every machine, so the list is the one of the
``tzdata`` package, not the system's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_AREAS = (
    *("Africa/", "America/", "Antarctica/", "Arctic/", "Asia/"),
    *("Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/"),
)
# States and directions that stand in the list beside the cities, and in every other English sentence
_NO_CITIES = frozenset(("act", "lhi", "nsw", "north", "south", "west"))
_URL = re.compile(r"https?://[^\s<>\"'`]+", re.IGNORECASE)


def find_zones(prompt: str) -> list[str]:
    """Return the zones of the cities *prompt* names: each once, in order of appearance.

    Case, accents, and whether a space, hyphen or underscore stands between words do not matter; where
    one name is inside another, the longest counts.  A URL names no city.
    """
    text = _plain(_URL.sub(" ", prompt))
    found = (_spelling(match[0]) for match in _pattern().finditer(text))
    return list(dict.fromkeys(_zones()[name] for name in found))


def find_urls(prompt: str) -> list[str]:
    """Return the URLs in *prompt*: each once, in order, without the punctuation of their sentence."""
    return list(dict.fromkeys(match[0].rstrip(".,;:!?)]}") for match in _URL.finditer(prompt)))


@cache
def _zones() -> Mapping[str, str]:
    """Return the zone of each city, by the city's spelling.

    A city with several zones (old names stay in the list) gets the one ``zone.tab`` has, else the last.
    """
    data = files("tzdata")
    tab = (data / "zoneinfo" / "zone.tab").read_text(encoding="utf-8")
    current = {line.split("\t")[2] for line in tab.splitlines() if line and not line.startswith("#")}
    names = (data / "zones").read_text(encoding="utf-8").split()
    listed = sorted((name for name in names if name.startswith(_AREAS)), key=current.__contains__)
    cities = {_spelling(name.rsplit("/", 1)[1]): name for name in listed}
    return {city: zone for city, zone in cities.items() if city not in _NO_CITIES}


@cache
def _pattern() -> re.Pattern[str]:
    longest_first = sorted(_zones(), key=lambda city: (-len(city), city))
    cities = "|".join(re.escape(city).replace(r"\ ", "[ _-]") for city in longest_first)
    return re.compile(rf"(?<!\w)(?:{cities})(?!\w)")


def _plain(text: str) -> str:
    """Take case, accents and the underscores of zone names away: "São_Paulo" is "sao paulo"."""
    letters = unicodedata.normalize("NFKD", text.replace("_", " ").casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _spelling(name: str) -> str:
    return _plain(name).replace("-", " ")
