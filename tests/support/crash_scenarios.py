"""Runs that are worth crashing.

Its one rule: what a scenario comes to without a crash is said here, not only compared with itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from support.crashing_tools import ProcessFault


class EarlierRun(StrEnum):
    """How an earlier process leaves the first run, in mid-tool."""

    RESUMED = "resumed"
    CANCELLED = "cancelled"
    CRASH_LOOP = "crash_loop"


@attrs.frozen
class Scenario:
    """What a process is to execute, in one session.

    Attributes:
        prompts: of the runs, in their order; the first words are ``one`` and ``two``.
        ends: the states the runs end in.
        stored: run, turn and role of each message in the end; ``s`` for a synthetic one.
        fates: of the process, as `Body` has them.
        left: None when no process was there before.
        gated: the runs have the completion gate `support.crashing_tools.GATE`.
    """

    name: str
    prompts: tuple[str, ...]
    ends: tuple[str, ...] = ("succeeded",)
    stored: str = "1.0u 1.1a 1.1u 1.2a 1.2u 1.3a"
    fates: Mapping[str, ProcessFault] = attrs.field(factory=dict)
    left: EarlierRun | None = None
    gated: bool = False


def _after(left: EarlierRun, end: str, stored: str) -> Scenario:
    """Make a scenario in which an earlier process died in the second turn of the first run."""
    name = f"after a run that is {left}"
    return Scenario(name, ("one look post", "two look"), (end, "succeeded"), stored, left=left)


_REPAIRED = "1.0u 1.1a 1.1u 1.2a 1.2us 2.0u 2.1a 2.1u 2.2a"
SCENARIOS = (
    Scenario("parallel tools", ("one look+tidy+pay+look tidy",)),
    Scenario("an unsafe tool", ("one post+look post",)),
    Scenario(
        "a cancel in mid-tool",
        ("one tidy look+quit",),
        ("cancelled",),
        "1.0u 1.1a 1.1u 1.2a",
        {"quit": ProcessFault.CANCEL},
    ),
    Scenario("a drain in mid-tool", ("one leave+pay look",), fates={"leave": ProcessFault.DRAIN}),
    Scenario(
        "a gate that rejects once",
        ("one look claim pay",),
        stored="1.0u 1.1a 1.1u 1.2a 1.2us 1.3a 1.3u 1.4a",
        gated=True,
    ),
    Scenario(
        "a gate that is never satisfied",
        ("one claim look claim", "two"),
        ("failed", "succeeded"),
        "1.0u 1.1a 1.1us 1.2a 1.2u 1.3a 2.0u 2.1a",
        gated=True,
    ),
    _after(EarlierRun.RESUMED, "succeeded", "1.0u 1.1a 1.1u 1.2a 1.2u 1.3a 2.0u 2.1a 2.1u 2.2a"),
    _after(EarlierRun.CANCELLED, "cancelled", _REPAIRED),
    _after(EarlierRun.CRASH_LOOP, "failed", _REPAIRED),
)
