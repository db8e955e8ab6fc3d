"""Pages of lists: as many rows as asked for, but no more bytes than a process can take at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs
import trio

from hango.db.queries import Row

T = TypeVar("T")

MAX_PAGE_BYTES = 1024 * 1024  # of what rows hold; a page has one row at least, however large
# Rows that hold more than this together are read in a thread: a megabyte of JSON would hold up
# everything else in the process for tens of milliseconds.
INLINE_BYTES = 32 * 1024


@attrs.frozen
class Page(Generic[T]):
    """A part of a list, in its order.

    Attributes:
        more: whether the list goes on.
        size: bytes of what the rows hold; 0 where they are small by nature.
    """

    rows: Sequence[T]
    more: bool
    size: int = 0

    @classmethod
    def of(cls, rows: Sequence[T], limit: int) -> Page[T]:
        """Return the first *limit* of *rows*; one row more than that means that the list goes on."""
        return cls(rows[:limit], len(rows) > limit)

    @classmethod
    async def read(cls, found: Sequence[Row], read: Callable[[Row], T]) -> Page[T]:
        """Return a page of rows that say how many were *found* and how many *bytes* they hold."""
        if not found:
            return cls([], more=False)
        more, size = found[0]["found"] > len(found), found[-1]["bytes"]
        if size > INLINE_BYTES:
            return cls(await trio.to_thread.run_sync(lambda: [*map(read, found)]), more, size)
        return cls([*map(read, found)], more, size)
