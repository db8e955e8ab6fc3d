"""The journal: what many runs write at the same time is stored by few statements.

A write that comes while a writer is free is sent at once, by its caller.  What comes while all are busy
waits until one is done, and is then sent together: one statement, and one commit, for up to `MAX_ITEMS`
runs.  So a write alone waits for nothing, and under load the batches grow by themselves.

Rule: items of one statement do not know of each other.  Each is fenced and answered by itself.  What is
left out because another transaction holds its row, and every item of a statement that the database
refuses, is sent once more alone, by its own caller.

Used by `hango.store.fence`; each `hango.store.queue.RunQueue` has one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import trio

from hango.db.pool import DEADLINE, Pool
from hango.db.queries import QUERIES, Query, Row
from hango.errors import NotSent, StoreUnavailable

WRITERS = 2
"""Statements that may be under way at once: a slow commit does not hold up the next one."""

MAX_ITEMS = 100  # of one statement
MAX_SIZE = 2**20  # characters of JSON in one statement; a larger item is sent alone

_log = logging.getLogger(__name__)


@attrs.frozen
class Statement:
    """A statement that takes any number of items.

    Attributes:
        together: leaves out the items whose rows another transaction has locked.
        alone: for one item; waits for its rows.
    """

    together: Query
    alone: Query

    @classmethod
    def of(cls, query: Query) -> Statement:
        """Return *query*, which skips locked rows, and the same that waits for them."""
        return cls(query, attrs.evolve(query, sql=query.sql.replace(" skip locked", "")))


@attrs.frozen
class Item:
    """What one run has to store.

    Attributes:
        values: one for each parameter in the singular; those of the fence among them.
        messages: lists of equal length, one for each parameter in the plural.
    """

    values: Mapping[str, object]
    messages: Mapping[str, Sequence[object]]

    @property
    def count(self) -> int:
        """How many messages it has."""
        return len(self.messages["message_ids"])

    @property
    def size(self) -> int:
        """How many characters of JSON it has."""
        return sum(len(str(content)) for content in self.messages["contents"])


def arguments(query: Query, items: Sequence[Item], pool: Pool) -> dict[str, object]:
    """Return the arguments of *query* for *items*."""
    first = items[0]
    values: dict[str, object] = {name: [item.values[name] for item in items] for name in first.values}
    for name in first.messages:
        values[name] = [one for item in items for one in item.messages[name]]
    values["message_count"] = [item.count for item in items]
    values["message_items"] = [n for n, item in enumerate(items, 1) for _ in range(item.count)]
    values["message_places"] = [place for item in items for place in range(1, item.count + 1)]
    if "now" in query.parameters:
        values["now"] = pool.now()
    return values


async def write_alone(pool: Pool, statement: Statement, item: Item, *, deadline: float) -> Row | None:
    """Write one item; return its row, or None if its fence did not hold.

    Raises:
        NotSent, StoreUnavailable, UniqueViolation: as `Pool.write`.
    """
    query = statement.alone
    answer = await pool.write(query, deadline=deadline, **arguments(query, [item], pool))
    return answer[0] if answer and not answer[0]["locked"] else None  # "locked": there is no such row


@attrs.define(eq=False)
class _Entry:
    """An item that waits, or is under way.

    Attributes:
        scope: in which its caller waits.
        sent: it is under way, and can no longer be cancelled.
        answered: set when one of the following says what came of it.
        row: the answer; None if the fence did not hold.
        error: why there is none.
        again: it is to be written alone.
    """

    statement: Statement
    item: Item
    scope: trio.CancelScope
    sent: bool = False
    answered: trio.Event = attrs.field(factory=trio.Event)
    row: Row | None = None
    error: StoreUnavailable | None = None
    again: bool = False

    @property
    def session_id(self) -> object:
        """Whose rows it locks."""
        return self.item.values["session_id"]


@attrs.define(eq=False)
class Journal:
    """The writes of one process's claims."""

    _pool: Pool
    _waiting: deque[_Entry] = attrs.field(factory=deque, init=False)
    _writing: int = attrs.field(default=0, init=False)  # statements under way

    async def write(
        self, pool: Pool, statement: Statement, item: Item, *, deadline: float
    ) -> Row | None:
        """Write *item*, together with others or alone; return its row, None if its fence did not hold.

        Cancelled before it is sent, or not at all.

        Args:
            pool: used when it is written alone; may keep a place.
            statement: what stores it.
            item: what to store.
            deadline: seconds it may take.

        Raises:
            NotSent, StoreUnavailable, UniqueViolation: as `Pool.write`.
        """
        if self._writing < WRITERS and not self._waiting:
            self._writing += 1
            try:
                return await write_alone(pool, statement, item, deadline=deadline)
            finally:
                self._done()
        until = trio.current_time() + deadline
        entry = await self._wait_in_line(_Entry(statement, item, trio.CancelScope(deadline=until)))
        if entry.error is not None:
            raise type(entry.error)(*entry.error.args) from entry.error
        if not entry.answered.is_set():
            late = "the database did not answer in time"
            raise StoreUnavailable(late) if entry.sent else NotSent(late)
        if entry.again:
            left = until - trio.current_time()
            return await write_alone(pool, statement, item, deadline=max(left, 0.0))
        return entry.row

    async def _wait_in_line(self, entry: _Entry) -> _Entry:
        """Return *entry* when it is answered, or its time is up."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._waiting.append(entry)
        try:
            with entry.scope:
                await entry.answered.wait()
        finally:
            if not entry.sent:
                self._waiting.remove(entry)
            elif not entry.answered.is_set():  # cancelled in the instant in which it was sent
                with trio.CancelScope(shield=True, deadline=entry.scope.deadline):
                    await entry.answered.wait()
        return entry

    def _done(self) -> None:
        """Let the next batch be sent: a statement has ended."""
        self._writing -= 1
        while self._waiting and self._writing < WRITERS:
            self._writing += 1
            self._pool.start_soon(partial(self._write_together, self._take()), name="journal")

    def _take(self) -> list[_Entry]:
        """Take the next batch: one statement, each session once, in the order in which they came."""
        statement = self._waiting[0].statement
        batch: dict[object, _Entry] = {}
        size = 0
        left: deque[_Entry] = deque()
        for entry in self._waiting:
            size += entry.item.size if entry.statement is statement else 0
            fits = not batch or (len(batch) < MAX_ITEMS and size <= MAX_SIZE)
            if entry.statement is statement and entry.session_id not in batch and fits:
                batch[entry.session_id] = entry
                entry.sent = entry.scope.shield = True
            else:
                left.append(entry)
        self._waiting = left
        return list(batch.values())

    async def _write_together(self, batch: Sequence[_Entry]) -> None:
        """Write *batch* in one statement, and tell each entry what came of it."""
        query, items = batch[0].statement.together, [entry.item for entry in batch]
        failure: StoreUnavailable | None = StoreUnavailable("the connections were closed")
        try:
            values = arguments(query, items, self._pool)
            for row in await self._pool.write(query, deadline=DEADLINE, **values):
                entry = batch[row["item"] - 1]
                entry.row, entry.again = (None, True) if row["locked"] else (row, False)
            failure = None
        except StoreUnavailable as error:
            failure = error
        except Exception:  # noqa: BLE001 - one item may be what the database refuses: each finds out alone
            _log.debug("%d writes are repeated one by one", len(batch), exc_info=True)
            failure = None
            for entry in batch:
                entry.again = True
        finally:
            for entry in batch:
                entry.error = failure
                entry.answered.set()
            self._done()


APPEND_MESSAGES = Statement.of(QUERIES["append_messages"])
END_TURN = Statement.of(QUERIES["end_turn"])
SETTLE_RUN = Statement.of(QUERIES["settle_run"])
RELEASE_RUN = Statement.of(QUERIES["release_run"])
