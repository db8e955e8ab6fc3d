"""Run the bench: ``python -m bench [--quick] [--rounds N] [NAME …]``.

Each round measures each line once, in order, each in a process of its own, so that what the machine
does meanwhile meets all lines alike.  A NAME chooses the lines that contain
it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import report
from bench.lines import LINES
from bench.samples import Sample
from bench.server import bench_database, bench_server

_FOLDER = Path(__file__).parent
_TIMEOUT = 120.0  # seconds for one line in one round


def main() -> None:
    """Measure, print the table, and write it unless only some lines were measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="measure the lines that contain it")
    parser.add_argument("--quick", action="store_true", help="shorter, one round, no file")
    parser.add_argument("--rounds", type=int, default=0, help="3, or 1 when quick")
    chosen = parser.parse_args()
    quick, rounds = bool(chosen.quick), int(chosen.rounds) or (1 if chosen.quick else 3)
    names = [
        name
        for name, line in LINES.items()
        if (not quick or line.quick) and any(word in name for word in chosen.names or [""])
    ]
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    with bench_server() as server:
        version = report.postgres_version(server)
        for number in range(rounds):
            for name in names:
                sys.stderr.write(f"\r\033[Kround {number + 1} of {rounds}: {name}")
                samples[name].append(_measure(server, name, quick=quick))
    sys.stderr.write("\r\033[K")
    text = report.table(samples, version)
    print(text)
    if not (quick or chosen.names):
        (_FOLDER / "RESULTS.md").write_text(text)
        (_FOLDER / "results.json").write_text(_raw(samples, version))


def _measure(server: str, name: str, *, quick: bool) -> Sample:
    """Measure one line once, in a process and a database of its own."""
    with bench_database(server) as dsn:
        command = [sys.executable, "-m", "bench.line", name, dsn, *(["quick"] if quick else [])]
        done = subprocess.run(  # noqa: S603
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=_TIMEOUT
        )
    return Sample(**json.loads(done.stdout))


def _raw(samples: Mapping[str, Sequence[Sample]], version: str) -> str:
    """Return the machine and all rounds, as JSON."""
    lines = {name: [_rounded(one) for one in rounds] for name, rounds in samples.items()}
    found = {"machine": report.machine(version), "lines": lines}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _rounded(sample: Sample) -> dict[str, object]:
    """Return *sample* without the single latencies, which would fill the file."""
    kept = {name: round(value, 4) for name, value in sample.figures().items()}
    return {**kept, "turns": sample.turns, "seconds": round(sample.seconds, 3)}


if __name__ == "__main__":
    main()
