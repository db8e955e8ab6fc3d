"""The table of a run of the bench."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version as version_of

import asyncpg

from bench.lines import LINES
from bench.samples import Sample, run_asyncio

COLUMNS = ("turns/s", "p50 ms", "p95 ms", "Python ms", "Postgres ms", "commits", "syncs", "WAL B")
_PER_TURN = "Python ms, Postgres ms, commits, syncs and WAL B are per turn"
_PACKAGES = ("trio", "trio-asyncio", "asyncpg", "attrs", "pydantic")


def postgres_version(server: str) -> str:
    """Return the version of the server, as it calls itself."""

    async def ask() -> str:
        connection = await asyncpg.connect(server)
        found = str(await connection.fetchval("show server_version"))
        await connection.close()
        return found

    return run_asyncio(ask())


def machine(postgres: str) -> dict[str, str]:
    """Return what the figures were taken on."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": " ".join(f"{value:.1f}" for value in os.getloadavg()),
        "python": platform.python_version(),
        "postgres": postgres,
        **{name: version_of(name) for name in _PACKAGES},
    }


def table(samples: Mapping[str, Sequence[Sample]], postgres: str) -> str:
    """Return the table as Markdown: medians over the rounds, ratios of each round's pair."""
    rounds = max((len(taken) for taken in samples.values()), default=0)
    about = ", ".join(f"{key} {value}" for key, value in machine(postgres).items())
    head = [
        "# Results of the bench",
        "",
        f"Medians of {rounds} interleaved rounds.  {_PER_TURN}; latencies are of whole runs.  Only",
        "ratios compare with other machines and days; what they are against is in brackets.",
        "They are of throughput, or of Python's time where a line has no throughput.",
        "",
        about + ".",
        "",
        f"| line | ratio | {' | '.join(COLUMNS)} |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    rows = [_row(name, samples) for name in samples]
    return "\n".join([*head, *rows]) + "\n"


def _row(name: str, samples: Mapping[str, Sequence[Sample]]) -> str:
    figures = [one.figures() for one in samples[name]]
    cells = []
    for column in COLUMNS:
        found = [taken[column] for taken in figures if column in taken]
        cells.append(_shown(statistics.median(found)) if found else "–")
    return f"| {name} | {_ratio(name, samples)} | {' | '.join(cells)} |"


def _ratio(name: str, samples: Mapping[str, Sequence[Sample]]) -> str:
    """Return the median ratio to the line beside it: of throughput, or of Python's time without one."""
    beside = LINES[name].beside
    if beside in ("", name) or beside not in samples:
        return "–"
    pairs = zip(samples[name], samples[beside], strict=True)
    found = [
        mine.turns / mine.seconds / (other.turns / other.seconds)
        if mine.seconds
        else (mine.python_ms / mine.turns) / (other.python_ms / other.turns)
        for mine, other in pairs
    ]
    return f"{statistics.median(found):.2f}× [{beside}]"


def _shown(value: float) -> str:
    if value >= 100:  # noqa: PLR2004 - three digits say all there is to say
        return f"{value:,.0f}"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"
