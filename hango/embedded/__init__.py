"""A Postgres of our own, for those who have none: shared by processes, stopped by the last.

One rule: what is on disk decides, under a lock; nothing about the server is kept in memory, so that any
process may die at any moment and the next one finds its way.

`hango.app` and `hango.testing` use it through `embedded_postgres` alone.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from hango.embedded.unsupported import embedded_postgres
else:
    from hango.embedded.server import embedded_postgres

__all__ = ["embedded_postgres"]
