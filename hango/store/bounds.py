"""How much a tenant may store and queue, over all processes."""

from __future__ import annotations

import attrs


@attrs.frozen
class StoreBounds:
    """The bounds that the stores refuse to pass; 0 is no bound.

    Attributes:
        tenant_runs: queued and running runs of a tenant.  As many more as are posted at the same
            moment to different sessions may get in.
    """

    tenant_runs: int = 0


UNBOUNDED = StoreBounds()
