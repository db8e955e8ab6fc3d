"""``/v1/runs`` and the runs of a session: ask, look, wait, cancel.

Rule: a run that was answered with 202 is in the database, in the transaction that counted the cap and
wrote the audit row; nothing here executes it.  Visibility comes first, as in `sessions`.
Only `hango.web` uses it.
"""

from __future__ import annotations

import attrs
import trio
from quart import Blueprint, Response, request

from hango.domain import Block, RunState, Session, TextBlock
from hango.errors import InvalidInput, SessionQueueFull
from hango.store.runs import Created, Runs
from hango.store.sessions import Sessions
from hango.web.auth import scope
from hango.web.endings import Endings
from hango.web.problem import DRAINING, Refused
from hango.web.sessions import read_blocks
from hango.web.shapes import run_to_json
from hango.web.wire import (
    Fields,
    answer,
    page_to_json,
    read_fields,
    read_id,
    read_id_cursor,
    read_idempotency_key,
    read_limit,
    read_nothing,
    read_trace,
    read_wait,
)


@attrs.frozen
class RunRoutes:
    """The routes of runs.

    Attributes:
        endings: where one waits for the end of a run.
        max_live: queued and running runs one session may have.
        draining: set when this process takes no new work.
    """

    runs: Runs
    sessions: Sessions
    endings: Endings
    max_live: int
    draining: trio.Event

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("runs", __name__)
        routes.post("/sessions/<session_id>/runs")(self.create)
        routes.get("/sessions/<session_id>/runs")(self.list_of_session)
        routes.get("/runs")(self.list)
        routes.get("/runs/<run_id>")(self.get)
        routes.post("/runs/<run_id>/cancel")(self.cancel)
        return routes

    async def create(self, session_id: str) -> Response:
        """Queue a run, or answer the one that the same request queued before."""
        session = await self.sessions.get(scope(), read_id(session_id))
        key = read_idempotency_key(request.headers)
        if key is None and self.draining.is_set():
            raise Refused(DRAINING)
        wanted = read_input(await read_fields())
        created = await self._create(session, wanted, key)
        headers = {"Location": f"/v1/runs/{created.run.id}"}
        if created.replayed:
            headers["Idempotency-Replayed"] = "true"
        return answer(run_to_json(created.run), 202, headers)

    async def _create(self, session: Session, wanted: tuple[Block, ...], key: str | None) -> Created:
        trace = read_trace(request.headers)
        if key is None:
            run = await self.runs.create(
                scope(), session.id, wanted, max_live=self.max_live, request_trace=trace
            )
            return Created(run, replayed=False)
        # Draining there is room for no run, but one that is there already is found all the same.
        room = 0 if self.draining.is_set() else self.max_live
        try:
            return await self.runs.create_once(
                scope(), session.id, wanted, key=key, max_live=room, request_trace=trace
            )
        except SessionQueueFull:
            if room:
                raise
            raise Refused(DRAINING) from None

    async def list_of_session(self, session_id: str) -> Response:
        """Answer a page of a session's runs, newest first."""
        return await self._page(await self.sessions.get(scope(), read_id(session_id)))

    async def list(self) -> Response:
        """Answer a page of the runs the caller may see, newest first."""
        return await self._page(None)

    async def _page(self, session: Session | None) -> Response:
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.runs.list(
            scope(),
            session_id=session.id if session else None,
            state=_read_state(request.args.get("state")),
            before=before,
            limit=limit + 1,
        )
        return answer(page_to_json(rows, limit, run_to_json, lambda run: run.id))

    async def get(self, run_id: str) -> Response:
        """Answer one run: as it is now, or when it has ended, for as long as the client will wait."""
        wait = read_wait(request.headers)
        if wait is None:
            return answer(run_to_json(await self.runs.get(scope(), read_id(run_id))))
        run = await self.endings.wait(scope(), read_id(run_id), wait)
        return answer(run_to_json(run), 200, {"Preference-Applied": f"wait={wait}"})

    async def cancel(self, run_id: str) -> Response:
        """Ask for the end of a run: 202 while its owner has yet to see it, 200 when it has ended."""
        run = await self.runs.get(scope(), read_id(run_id))
        await read_nothing()
        run = await self.runs.cancel(scope(), run.id)
        return answer(run_to_json(run), 200 if run.state.terminal else 202)


def read_input(fields: Fields) -> tuple[Block, ...]:
    """Read the input of a run: a text, or blocks of text."""
    blocks = read_blocks(fields, "input", (TextBlock,))
    fields.end()
    return blocks


def _read_state(text: str | None) -> RunState | None:
    if text is None:
        return None
    try:
        return RunState(text)
    except ValueError:
        raise InvalidInput(f"must be one of {', '.join(RunState)}", field="state") from None
