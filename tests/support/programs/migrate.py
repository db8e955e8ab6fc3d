"""A process that brings a database up to date; tells what it applied.

Arguments: the database's URL, then the folder of the migrations (none: hango's own).
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from hango.db.migrations import apply_migrations, migrate

if __name__ == "__main__":
    dsn, *folder = sys.argv[1:]
    names = trio.run(apply_migrations, dsn, Path(folder[0])) if folder else trio.run(migrate, dsn)
    sys.stdout.write(" ".join(names))
