"""How long to wait before trying again what failed.

Pure; whoever uses it sleeps by himself.
"""

from __future__ import annotations

import attrs


@attrs.define
class Backoff:
    """A pause that doubles with each failure in a row.

    Attributes:
        first: seconds, of the first pause.
        most: seconds, of the longest.
    """

    first: float
    most: float
    _next: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin with the first pause."""
        self.reset()

    def pause(self) -> float:
        """Return how many seconds to wait now; the next pause will be twice as long."""
        pause, self._next = min(self._next, self.most), min(self._next * 2, self.most)
        return pause

    def reset(self) -> None:
        """Begin again, since something went well."""
        self._next = self.first
