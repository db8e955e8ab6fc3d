"""What Postgres holds of two sessions, in the words of the model.

One rule: it is read in one go while nothing goes on, and every row is kept as it is, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from uuid import UUID

import attrs

from hango.db.connections import Connection
from hango.db.pool import Pool
from hango.db.queries import Row as Record
from hango.domain import RunState

from support.run_model.model import CallKey, Message, Model, Row

_RUNS = "select * from runs order by session_seq"
_MESSAGES = """
select messages.session_id, session_seq, messages.turn, role, partial
  from messages
  join runs on runs.id = run_id
 order by seq
"""
_EFFECTS = """
select session_id, session_seq, tool_effects.turn, ordinal, result is not null as finished
  from tool_effects
  join runs on runs.id = run_id
"""
_EVERYTHING = " union all ".join(
    f"(select '{table} ' || {table}::text as row from {table} order by 1)"  # noqa: S608 - our own words
    for table in ("sessions", "runs", "messages", "tool_effects", "audit_events")
)


@attrs.frozen
class Names:
    """What the model numbers, as it is stored.

    Attributes:
        sessions, owners: their ids, in order.
        epoch: what the database's clock showed at second 0.
    """

    sessions: Sequence[UUID]
    owners: Sequence[UUID]
    epoch: datetime

    def row(self, record: Record) -> Row:
        """Return a run as the model has it."""
        due = self._seconds(record["not_before"])
        return Row(
            session=self.sessions.index(record["session_id"]),
            place=record["session_seq"],
            state=RunState(record["state"]),
            owner=self._owner(record["owner_id"]),
            last_owner=self._owner(record["last_owner_id"]),
            epoch=record["claim_epoch"],
            turn=record["resume_turn"],
            reclaims=record["reclaims"],
            cancelled=record["cancel_requested_at"] is not None,
            lease=self._seconds(record["lease_expires_at"]),
            due=None if due is None else (due, due),
        )

    def call(self, record: Record) -> CallKey:
        """Return what the model knows a call by."""
        session = self.sessions.index(record["session_id"])
        return (session, record["session_seq"], record["turn"], record["ordinal"])

    def _owner(self, owner_id: UUID | None) -> int | None:
        return None if owner_id is None else self.owners.index(owner_id)

    def _seconds(self, time: datetime | None) -> float | None:
        return None if time is None else (time - self.epoch).total_seconds()


@attrs.frozen
class Stored:
    """All there is.

    Attributes:
        ids: of the runs of each session, in order.
        lines, messages, effects: as in the model.
        everything: every row of every table that may change, as text.
    """

    ids: Sequence[Sequence[UUID]]
    lines: Sequence[Sequence[Row]]
    messages: Sequence[Sequence[Message]]
    effects: Mapping[CallKey, bool]
    everything: Sequence[str]

    @classmethod
    async def read(cls, pool: Pool, names: Names) -> Stored:
        """Read it."""

        async def fetch(connection: Connection) -> Sequence[Sequence[Record]]:
            return [
                await connection.fetch(query) for query in (_RUNS, _MESSAGES, _EFFECTS, _EVERYTHING)
            ]

        runs, messages, effects, everything = await pool.unit(fetch)
        lines = [[run for run in runs if run["session_id"] == session] for session in names.sessions]
        return cls(
            [[run["id"] for run in line] for line in lines],
            [[names.row(run) for run in line] for line in lines],
            [
                [
                    (told["session_seq"], told["turn"], told["role"], told["partial"])
                    for told in messages
                    if told["session_id"] == session
                ]
                for session in names.sessions
            ],
            {names.call(call): call["finished"] for call in effects},
            [row["row"] for row in everything],
        )

    def tell(self, model: Model) -> None:
        """Tell the model how long the pauses are that it could not foresee."""
        for row, found in zip(chain(*model.lines), chain(*self.lines), strict=True):
            row.due = found.due

    def fits(self, model: Model) -> bool:
        """Whether it is what the model says; the end of a pause need only be within its bounds."""
        return (
            self.messages == model.messages
            and self.effects == model.effects
            and list(map(len, self.lines)) == list(map(len, model.lines))
            and all(map(_fits, chain(*self.lines), chain(*model.lines)))
        )


def _fits(stored: Row, must: Row) -> bool:
    if stored.due is None or must.due is None:
        return stored == must
    earliest, latest = must.due
    return earliest <= stored.due[0] <= latest and attrs.evolve(stored, due=must.due) == must
