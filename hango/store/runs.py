"""Runs as their users see them; every call is bounded by `visibility`.

What workers do with a run is in `hango.store.queue` and `hango.store.claims`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from uuid import UUID

import attrs

from hango.codec import blocks_to_json, dump_json
from hango.db.pool import Pool
from hango.db.queries import QUERIES
from hango.domain import Block, Run, RunState, Scope, new_id, time_of_id
from hango.errors import HangoError, KeyReused, NotFound, SessionQueueFull, TenantQueueFull
from hango.store import rows
from hango.store.bounds import UNBOUNDED, StoreBounds
from hango.store.pages import MAX_PAGE_BYTES, Page
from hango.store.visibility import visibility

INSERT_RUN = QUERIES["insert_run"]
GET_RUN = QUERIES["get_run"]
LIST_SESSION_RUNS = QUERIES["list_session_runs"]
LIST_TENANT_RUNS = QUERIES["list_tenant_runs"]
LIST_TENANT_RUNS_IN_STATE = QUERIES["list_tenant_runs_in_state"]
LIST_OWN_RUNS = QUERIES["list_own_runs"]
CANCEL_RUN = QUERIES["cancel_run"]


@attrs.frozen
class Created:
    """A run as it is now; *replayed* if an earlier request of the same key had made it."""

    run: Run
    replayed: bool


@attrs.define
class Runs:
    """The runs of a tenant."""

    _pool: Pool
    _bounds: StoreBounds = UNBOUNDED

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
            input: the user's message.
            max_live: queued and running runs the session may have, this one included.
            request_trace: the ``traceparent`` of the request it came by.

        Raises:
            NotFound: there is no such session that *scope* may see.
            SessionQueueFull: the session has *max_live* live runs.
            TenantQueueFull: all sessions of the tenant together have as many as `StoreBounds` says.
        """
        return (await self._insert(scope, session_id, input, None, max_live, request_trace)).run

    async def create_once(
        self,
        scope: Scope,
        session_id: UUID,
        input: tuple[Block, ...],  # noqa: A002  # the word of the API
        *,
        key: str,
        max_live: int,
        request_trace: str | None = None,
    ) -> Created:
        """Put a run in line, or find the one that the same request created before.

        As `create`, with *key* as the request's name, which is its creator's, for this session.

        Raises:
            KeyReused: *key* named a request of another input.
        """
        return await self._insert(scope, session_id, input, key, max_live, request_trace)

    async def _insert(
        self,
        scope: Scope,
        session_id: UUID,
        wanted: tuple[Block, ...],
        key: str | None,
        max_live: int,
        request_trace: str | None,
    ) -> Created:
        """Insert a run, or find it by its key, in one statement."""
        input_json = dump_json(blocks_to_json(wanted))
        digest = None if key is None else hashlib.sha256(input_json.encode()).digest()
        answer = await self._pool.write(
            INSERT_RUN,
            session_id=session_id,
            run_id=new_id(),
            input=input_json,
            max_live=max_live,
            tenant_runs=self._bounds.tenant_runs,
            trace_id=_new_trace_id(),
            request_trace=request_trace,
            idempotency_key=key,
            request_sha256=digest,
            audit_id=new_id(),
            **visibility(scope),
        )
        if not answer:
            raise NotFound("there is no such session")
        found = answer[0]
        if found["id"] is None:
            raise self._refusal(found["live"], max_live)
        if found["replayed"] and found["request_sha256"] != digest:
            raise KeyReused("this key came with another input before")
        return Created(rows.run(found), replayed=found["replayed"])

    def _refusal(self, live: int, max_live: int) -> HangoError:
        """Return which bound was reached, by a session with *live* live runs."""
        if live >= max_live:
            return SessionQueueFull(f"the session has {max_live} runs queued or running")
        return TenantQueueFull(f"the tenant has {self._bounds.tenant_runs} runs queued or running")

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
        """Return up to *limit* runs older than *before*, newest first, however large."""
        page = await self.page(
            scope,
            session_id=session_id,
            state=state,
            before=before,
            limit=limit,
            with_input=True,
            max_bytes=None,
        )
        return page.rows

    async def page(
        self,
        scope: Scope,
        *,
        session_id: UUID | None = None,
        state: RunState | None = None,
        before: UUID | None = None,
        limit: int = 50,
        with_input: bool = False,
        max_bytes: int | None = MAX_PAGE_BYTES,
    ) -> Page[Run]:
        """Return a page of runs older than *before*, newest first by the database's clock.

        Those of one session come in the order of its line.  Each kind of list is a statement of its
        own, so that each has an index and none reads another tenant's runs.

        Args:
            scope: on whose behalf.
            session_id: only runs of this session.
            state: only runs in this state.
            before: only runs older than this one.
            limit: how many at most.
            with_input: without it, their inputs are empty.
            max_bytes: of their inputs together, but for the first's; None is no bound.
        """
        values: dict[str, object] = {"before": before, "limit": limit, **visibility(scope)}
        values |= {"with_input": with_input, "max_bytes": max_bytes}
        if session_id is not None:
            query, values = LIST_SESSION_RUNS, values | {"session_id": session_id, "state": state}
        else:
            values["before_at"] = None if before is None else time_of_id(before)
            if not scope.role.administers:
                query, values = LIST_OWN_RUNS, values | {"state": state}
            elif state is None:
                query = LIST_TENANT_RUNS
            else:
                query, values = LIST_TENANT_RUNS_IN_STATE, values | {"state": state}
        return await Page.read(await self._pool.rows(query, **values), rows.run)

    async def cancel(self, scope: Scope, run_id: UUID) -> Run:
        """Ask for a run to end as cancelled; return it as it is now.

        A queued run is cancelled at once, a running one when its owner next looks, and one that has
        ended stays as it ended.  Asking again changes nothing.

        Raises:
            NotFound: there is no such run that *scope* may see.
        """
        changed = await self._pool.write(
            CANCEL_RUN,
            run_id=run_id,
            audit_id=new_id(),
            now=self._pool.now(),
            **visibility(scope),
        )
        return rows.run(changed[0]) if changed else await self.get(scope, run_id)


def _new_trace_id() -> str:
    """Draw a trace id: 16 random bytes in hex, never all zero (W3C Trace Context §3.2.2.3)."""
    return f"{secrets.randbits(128) or 1:032x}"
