"""``/v1/runs`` and the runs of a session: create, get, wait, cancel.

Rule: a run that was answered with 202 is in the database, stored by the transaction that checked the
session's limit and wrote the audit event; nothing here executes it.  Visibility comes first, as in
`sessions`.
"""

from __future__ import annotations

from uuid import UUID

import attrs
import trio
from quart import Response, request

from hango.domain import Block, RunState, Session
from hango.errors import InvalidInput, SessionQueueFull
from hango.store.runs import Created, Runs
from hango.store.sessions import Sessions
from hango.web.auth import scope
from hango.web.models.requests import NewRunBody
from hango.web.models.responses import RunJson, RunPage
from hango.web.problem import (
    DRAINING,
    IDEMPOTENCY_KEY,
    KEY_REUSED,
    QUEUE_FULL,
    TENANT_QUEUE_FULL,
    ApiError,
)
from hango.web.route import Parameter, Reply, page_route, route
from hango.web.run_waiter import RunWaiter
from hango.web.wire import (
    MAX_WAIT,
    json_response,
    page_response,
    read_body,
    read_empty_body,
    read_id,
    read_id_cursor,
    read_idempotency_key,
    read_limit,
    read_trace,
    read_wait,
)

_TAG = "runs"
_RUN, _RUNS_OF_SESSION = "/v1/runs/{run_id}", "/v1/sessions/{session_id}/runs"

_STATE = Parameter(
    "state", "query", "Only runs in this state.", {"enum": [state.value for state in RunState]}
)
_INCLUDE = Parameter(
    "include",
    "query",
    "`input`: with the runs' inputs, which a list does not have otherwise.",
    {"enum": ["input"]},
)
_KEY = Parameter(
    IDEMPOTENCY_KEY,
    "header",
    "A name for this request, so that it can be sent again: a repeated request gets the run that the "
    "first one created, as it is by then, even if the session's queue is full or the server is "
    "shutting down.  Keys are per user and session, and stand for one body.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
)
_TRACE = Parameter(
    "traceparent",
    "header",
    "The caller's trace (W3C Trace Context); the run's own trace links to it.",
    {"type": "string"},
    checked=False,
)
_WAIT = Parameter(
    "Prefer",
    "header",
    f"`wait=N` (RFC 7240): answer when the run has ended, after N seconds ({MAX_WAIT} at most) or when "
    "the server begins to shut down, whichever comes first.",
    {"type": "string", "examples": ["wait=5"]},
    checked=False,
)


@attrs.frozen
class RunRoutes:
    """The routes of runs.

    Attributes:
        waiter: waits for the ends of runs.
        max_live: queued and running runs that one session may have.
        draining: set when this process takes no new runs.
    """

    runs: Runs
    sessions: Sessions
    waiter: RunWaiter
    max_live: int
    draining: trio.Event

    @route(
        "POST",
        _RUNS_OF_SESSION,
        _TAG,
        Reply(
            202,
            "The run.  It is stored, and will be executed even if this server ends.",
            RunJson,
            headers=["Location"],
            may_have=["Idempotency-Replayed"],
        ),
        body=NewRunBody,
        parameters=[_KEY, _TRACE],
        problems=[KEY_REUSED, QUEUE_FULL, TENANT_QUEUE_FULL, DRAINING],
    )
    async def create_run(self, session_id: str) -> Response:
        """Queue a run."""
        of = read_id(session_id)
        try:
            body, key = await self._read_new_run()
        except Exception:  # 404 comes first, whatever else is wrong
            await self.sessions.get(scope(), of)
            raise
        created = await self._create(of, body.input, key)
        headers = {"Location": f"/v1/runs/{created.run.id}"}
        if created.replayed:
            headers["Idempotency-Replayed"] = "true"
        return json_response(RunJson.of(created.run), 202, headers)

    async def _read_new_run(self) -> tuple[NewRunBody, str | None]:
        """Read what is asked for, and by which key."""
        key = read_idempotency_key(request.headers)
        if key is None and self.draining.is_set():
            raise ApiError(DRAINING)
        return await read_body(NewRunBody), key

    async def _create(self, session_id: UUID, wanted: tuple[Block, ...], key: str | None) -> Created:
        trace = read_trace(request.headers)
        if key is None:
            run = await self.runs.create(
                scope(), session_id, wanted, max_live=self.max_live, request_trace=trace
            )
            return Created(run, replayed=False)
        # While draining no new run is taken, but one that exists is still found by its key.
        room = 0 if self.draining.is_set() else self.max_live
        try:
            return await self.runs.create_once(
                scope(), session_id, wanted, key=key, max_live=room, request_trace=trace
            )
        except SessionQueueFull:
            if room:
                raise
            raise ApiError(DRAINING) from None

    @page_route(_RUNS_OF_SESSION, _TAG, RunPage, parameters=[_STATE, _INCLUDE])
    async def list_session_runs(self, session_id: str) -> Response:
        """List the runs of a session, newest first."""
        return await self._page(await self.sessions.get(scope(), read_id(session_id)))

    @page_route("/v1/runs", _TAG, RunPage, parameters=[_STATE, _INCLUDE])
    async def list_runs(self) -> Response:
        """List the runs you may see, newest first."""
        return await self._page(None)

    async def _page(self, session: Session | None) -> Response:
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        page = await self.runs.page(
            scope(),
            session_id=session.id if session else None,
            state=_read_state(request.args.get("state")),
            before=before,
            limit=limit,
            with_input=_read_include(request.args.get("include")),
        )
        return await page_response(RunPage, page, lambda run: run.id)

    @route(
        "GET",
        _RUN,
        _TAG,
        Reply(200, "The run.", RunJson, may_have=["Preference-Applied"]),
        parameters=[_WAIT],
    )
    async def get_run(self, run_id: str) -> Response:
        """Get a run, or wait for its end."""
        wait = read_wait(request.headers)
        if wait is None:
            return json_response(RunJson.of(await self.runs.get(scope(), read_id(run_id))))
        run = await self.waiter.wait(scope(), read_id(run_id), wait)
        return json_response(RunJson.of(run), 200, {"Preference-Applied": f"wait={wait}"})

    @route(
        "POST",
        f"{_RUN}/cancel",
        _TAG,
        Reply(202, "The run.  It is being cancelled and has not ended yet.", RunJson),
        Reply(200, "The run.  It has ended, by this request or before it.", RunJson),
    )
    async def cancel_run(self, run_id: str) -> Response:
        """Cancel a run.

        Cancelling again changes nothing.
        """
        run = await self.runs.get(scope(), read_id(run_id))
        await read_empty_body()
        run = await self.runs.cancel(scope(), run.id)
        return json_response(RunJson.of(run), 200 if run.state.terminal else 202)


def _read_state(text: str | None) -> RunState | None:
    if text is None:
        return None
    try:
        return RunState(text)
    except ValueError:
        raise InvalidInput(f"must be one of {', '.join(RunState)}", field="state") from None


def _read_include(text: str | None) -> bool:
    """Return whether the inputs are asked for."""
    if text not in {None, "input"}:
        raise InvalidInput("must be input", field="include")
    return text is not None
