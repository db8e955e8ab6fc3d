"""get_time: IANA names only, the same on every system, the offset always there."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from uuid import UUID

import pytest

from hango.domain import Effects, Result, ToolContext, ToolUseBlock
from hango.testing import MemoryLedger
from hango.tools import Registry
from hango.tools.builtin import make_get_time
from hango.tools.builtin.get_time import _written, zones

NOW = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)


async def ask(now: datetime = NOW, **arguments: object) -> Result:
    """Ask for the time as an agent would."""
    registry = Registry()
    registry.register(make_get_time(clock=lambda: now))
    view = registry.view([], timeout=5, result_limit=1000)
    context = ToolContext(run_id=UUID(int=1), turn=1, ordinal=0, call_id="c")
    return await view.call(ToolUseBlock("c", "get_time", arguments), context, MemoryLedger())


def test_it_may_run_again() -> None:
    """Asking twice does no harm."""
    assert make_get_time().effects is Effects.READ_ONLY


async def test_the_default_is_utc() -> None:
    """Date, time, offset, zone and day of the week."""
    assert await ask() == Result("2026-11-01T05:30:00+00:00 (UTC, Sunday)")


async def test_without_a_clock_it_tells_the_time_that_is() -> None:
    """The wall clock is read at each call."""
    registry = Registry()
    registry.register(make_get_time())
    view = registry.view([], timeout=5, result_limit=1000)
    context = ToolContext(run_id=UUID(int=1), turn=1, ordinal=0, call_id="c")
    before = datetime.now(UTC).replace(microsecond=0)
    result = await view.call(ToolUseBlock("c", "get_time"), context, MemoryLedger())
    told = datetime.fromisoformat(result.for_llm.partition(" ")[0])
    assert before <= told <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("utc", "zone", "text"),
    [
        (
            "2026-11-01T05:30",
            "America/New_York",
            "2026-11-01T01:30:00-04:00 (America/New_York, Sunday)",
        ),
        (
            "2026-11-01T06:30",
            "America/New_York",
            "2026-11-01T01:30:00-05:00 (America/New_York, Sunday)",
        ),
        (
            "2026-03-08T06:59",
            "America/New_York",
            "2026-03-08T01:59:00-05:00 (America/New_York, Sunday)",
        ),
        (
            "2026-03-08T07:00",
            "America/New_York",
            "2026-03-08T03:00:00-04:00 (America/New_York, Sunday)",
        ),
        (
            "2026-04-04T14:30",
            "Australia/Lord_Howe",
            "2026-04-05T01:30:00+11:00 (Australia/Lord_Howe, Sunday)",
        ),
        (
            "2026-04-04T15:15",
            "Australia/Lord_Howe",
            "2026-04-05T01:45:00+10:30 (Australia/Lord_Howe, Sunday)",
        ),
        ("2011-12-30T09:59", "Pacific/Apia", "2011-12-29T23:59:00-10:00 (Pacific/Apia, Thursday)"),
        ("2011-12-30T10:00", "Pacific/Apia", "2011-12-31T00:00:00+14:00 (Pacific/Apia, Saturday)"),
        (
            "2026-07-01T00:00",
            "Antarctica/Troll",
            "2026-07-01T02:00:00+02:00 (Antarctica/Troll, Wednesday)",
        ),
        ("2026-12-31T23:59", "Asia/Kathmandu", "2027-01-01T05:44:00+05:45 (Asia/Kathmandu, Friday)"),
    ],
)
async def test_an_hour_that_comes_twice_is_told_apart(utc: str, zone: str, text: str) -> None:
    """H04: computed from the instant, and the offset is always printed."""
    assert await ask(datetime.fromisoformat(f"{utc}+00:00"), timezone=zone) == Result(text)


@pytest.mark.parametrize("name", ["utc", "Utc", "europe/paris", "EUROPE/PARIS", "aMERICA/nEW_yORK"])
async def test_case_does_not_matter_anywhere(name: str) -> None:
    """H03: one rule on every system; the answer has the name's own spelling."""
    result = await ask(timezone=name)
    assert not result.is_error
    assert zones()[name.casefold()] in result.for_llm


@pytest.mark.parametrize(
    ("zone", "start"),
    [
        ("Etc/GMT+3", "2026-11-01T02:30:00-03:00"),
        ("Etc/GMT-14", "2026-11-01T19:30:00+14:00"),
        ("EST", "2026-11-01T00:30:00-05:00"),
        ("GMT", "2026-11-01T05:30:00+00:00"),
        ("GMT+0", "2026-11-01T05:30:00+00:00"),
    ],
)
async def test_odd_names_that_are_in_the_list_are_what_the_list_says(zone: str, start: str) -> None:
    """H05: the sign of Etc names is inverted, and the printed offset shows it."""
    assert (await ask(timezone=zone)).for_llm.startswith(start)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("UTC+3", "Etc/GMT-3"),
        ("GMT+3", "Etc/GMT-3"),
        ("utc-5", "Etc/GMT+5"),
        ("+02:00", "Etc/GMT-2"),
        ("UTC +05:30", "name a place"),
        ("-13", "name a place"),
        ("UTC+0", "UTC"),
        ("Tokyo", "Asia/Tokyo"),
        ("new york", "America/New_York"),
        ('"Europe/Berlin"', "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("America/Buenos_Aires ", "America/Argentina/Buenos_Aires"),
        ("Pariss", "Europe/Paris"),
        ("", "Europe/Paris"),
        ("Middle Earth", "Europe/Paris"),
        ("../../etc/passwd", "Europe/Paris"),
        ("Europe", "Europe/Paris"),
        ("UTC\0", "IANA"),
        ("\ud800", "IANA"),
        ("x" * 100, "IANA"),
    ],
)
async def test_what_is_no_zone_is_refused_with_a_hint(name: str, hint: str) -> None:
    """H05: an offset, a city or a typing error is refused, and the model learns the name."""
    result = await ask(timezone=name)
    assert result.is_error
    assert hint in result.for_llm
    assert len(result.for_llm) < 500


@pytest.mark.parametrize("wrong", [5, None, ["UTC"], "x" * 101])
async def test_what_is_no_text_does_not_get_there(wrong: object) -> None:
    """C04: the schema says text of a bounded length."""
    assert (await ask(timezone=wrong)).is_error


def test_all_zones_of_the_list_can_be_told() -> None:
    """H02: each name the package lists is in the package."""
    assert len(zones()) > 500
    for name in zones().values():
        assert f"({name}, " in _written(NOW, name)


def test_the_system_s_own_zones_do_not_matter() -> None:
    """H02: on an image without any, named zones work, and a zone of the system changes nothing."""
    program = (
        "from datetime import UTC, datetime\n"
        "from hango.tools.builtin.get_time import _written\n"
        "print(_written(datetime(2026, 7, 1, tzinfo=UTC), 'Europe/Paris'))"
    )
    for path in ("", "/nowhere"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONTZPATH": path, "TZ": "Asia/Tokyo"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "2026-07-01T02:00:00+02:00 (Europe/Paris, Wednesday)\n"
