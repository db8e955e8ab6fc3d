"""Runs as their users see them; every call is bounded by `visibility`.

What workers do with a run is in `hango.store.queue` and `hango.store.transcript`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from uuid import UUID

import attrs

from hango.codec import blocks_to_json, dump_json
from hango.domain import Block, Run, RunState, Scope, new_id
from hango.errors import NotFound, SessionQueueFull
from hango.store import rows
from hango.store.connections import Connection
from hango.store.pool import Pool
from hango.store.queries import QUERIES
from hango.store.visibility import visibility

LOCK_SESSION = QUERIES["lock_session"]
INSERT_RUN = QUERIES["insert_run"]
GET_RUN = QUERIES["get_run"]
LIST_RUNS = QUERIES["list_runs"]
CANCEL_RUN = QUERIES["cancel_run"]


@attrs.define
class Runs:
    """The runs of a tenant."""

    _pool: Pool

    async def create(
        self,
        scope: Scope,
        session_id: UUID,
        input: tuple[Block, ...],  # noqa: A002  # the word of the API
        *,
        max_live: int,
        request_trace: str | None = None,
    ) -> Run:
        """Put a run at the end of its session's line.

        Its trace begins here: the id is drawn now and stands on the run and its audit row.

        Args:
            scope: on whose behalf; becomes the run's creator.
            session_id: the session.
            input: what the user says.
            max_live: queued and running runs the session may have, this one included.
            request_trace: the ``traceparent`` of the request it came by.

        Raises:
            NotFound: there is no such session that *scope* may see.
            SessionQueueFull: the session has *max_live* live runs.
        """
        lock = LOCK_SESSION.arguments({"session_id": session_id, **visibility(scope)})
        values = INSERT_RUN.arguments(
            {
                "session_id": session_id,
                "run_id": new_id(),
                "user_id": scope.user_id,
                "input": dump_json(blocks_to_json(input)),
                "max_live": max_live,
                "trace_id": _new_trace_id(),
                "request_trace": request_trace,
                "audit_id": new_id(),
            }
        )

        async def insert(connection: Connection) -> Run:
            async with connection.transaction():
                if not await connection.fetch(LOCK_SESSION.sql, *lock):
                    raise NotFound("there is no such session")
                created = await connection.fetch(INSERT_RUN.sql, *values)
                if not created:
                    raise SessionQueueFull(f"the session has {max_live} runs queued or running")
                return rows.run(created[0])

        return await self._pool.unit(insert)

    async def get(self, scope: Scope, run_id: UUID) -> Run:
        """Return one run.

        Raises:
            NotFound: there is none that *scope* may see.
        """
        row = await self._pool.one(GET_RUN, run_id=run_id, **visibility(scope))
        if row is None:
            raise NotFound("there is no such run")
        return rows.run(row)

    async def list(
        self,
        scope: Scope,
        *,
        session_id: UUID | None = None,
        state: RunState | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return up to *limit* runs older than *before*, newest first."""
        found = await self._pool.rows(
            LIST_RUNS,
            session_id=session_id,
            state=state,
            before=before,
            limit=limit,
            **visibility(scope),
        )
        return [rows.run(row) for row in found]

    async def cancel(self, scope: Scope, run_id: UUID) -> Run:
        """Ask for a run to end as cancelled; return it as it is now.

        A queued run is cancelled at once, a running one when its owner next looks, and one that has
        ended stays as it ended.  Asking again changes nothing.

        Raises:
            NotFound: there is no such run that *scope* may see.
        """
        changed = await self._pool.write(
            CANCEL_RUN, run_id=run_id, audit_id=new_id(), **visibility(scope)
        )
        return rows.run(changed[0]) if changed else await self.get(scope, run_id)


def _new_trace_id() -> str:
    """Draw a trace id: 16 random bytes in hex, never all zero (W3C Trace Context §3.2.2.3)."""
    return f"{secrets.randbits(128) or 1:032x}"
