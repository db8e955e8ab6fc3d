"""``/v1/runs`` and the runs of a session: ask, look, cancel.

Rule: a run that was answered with 202 is in the database, in the transaction that counted the cap and
wrote the audit row; nothing here executes it.  Visibility comes first, as in `sessions`.
Only `hango.web` uses it.
"""

from __future__ import annotations

import re

import attrs
import trio
from quart import Blueprint, Response, request

from hango.domain import Block, RunState, Session, TextBlock
from hango.errors import InvalidInput
from hango.store.runs import Runs
from hango.store.sessions import Sessions
from hango.web.auth import scope
from hango.web.page import page_to_json, read_id_cursor, read_limit
from hango.web.problem import DRAINING, Refused
from hango.web.sessions import read_blocks
from hango.web.shapes import run_to_json
from hango.web.wire import Fields, answer, read_fields, read_id

# https://www.w3.org/TR/trace-context/#traceparent-header, version 00
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@attrs.frozen
class RunRoutes:
    """The routes of runs.

    Attributes:
        max_live: queued and running runs one session may have.
        draining: set when this process takes no new work.
    """

    runs: Runs
    sessions: Sessions
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
        """Queue a run."""
        if self.draining.is_set():
            raise Refused(DRAINING)
        session = await self.sessions.get(scope(), read_id(session_id))
        wanted = read_input(await read_fields())
        run = await self.runs.create(
            scope(), session.id, wanted, max_live=self.max_live, request_trace=_request_trace()
        )
        return answer(run_to_json(run), 202, location=f"/v1/runs/{run.id}")

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
        """Answer one run."""
        return answer(run_to_json(await self.runs.get(scope(), read_id(run_id))))

    async def cancel(self, run_id: str) -> Response:
        """Ask for the end of a run: 202 while its owner has yet to see it, 200 when it has ended."""
        run = await self.runs.cancel(scope(), read_id(run_id))
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


def _request_trace() -> str | None:
    """Return the caller's trace context, where it sent a sound one: the run links to it."""
    text = request.headers.get("traceparent", "")
    return text if _TRACEPARENT.fullmatch(text) else None
