"""Measure one line once: ``python -m bench.line NAME URL [quick]``; prints the sample as JSON."""

from __future__ import annotations

import json
import logging
import sys

import attrs

from bench.lines import LINES


def main() -> None:
    """Measure."""
    logging.basicConfig(level=logging.WARNING)  # to stderr
    name, dsn, *rest = sys.argv[1:]
    line = LINES[name]
    measure = line.quick if rest and line.quick else line.measure
    print(json.dumps(attrs.asdict(measure(dsn))))


if __name__ == "__main__":
    main()
