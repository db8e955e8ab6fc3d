"""A process that uses an embedded Postgres: tells its URL, and holds it until its input ends.

Arguments: the data folder, then settings of the server as ``name=value``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hango.embedded import embedded_postgres

if __name__ == "__main__":
    settings = dict(argument.split("=", 1) for argument in sys.argv[2:])
    with embedded_postgres(Path(sys.argv[1]), settings=settings) as dsn:
        sys.stdout.write(f"{dsn}\n")
        sys.stdout.flush()
        sys.stdin.read()
