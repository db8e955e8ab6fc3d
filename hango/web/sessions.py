"""``/v1/sessions`` and the messages in them.

Rule: whether the caller may see a session is checked first; only then is the body read, so that the
answer for a session of another user is the one for a session that does not exist.
"""

from __future__ import annotations

import attrs
from quart import Response, request

from hango.store.pages import Page
from hango.store.sessions import Sessions
from hango.web.auth import scope
from hango.web.models.requests import NewMessageBody, NewSessionBody
from hango.web.models.responses import MessageJson, MessagePage, SessionJson, SessionPage
from hango.web.problem import NOT_FOUND, SESSION_BUSY
from hango.web.route import Reply, page_route, route
from hango.web.wire import (
    json_response,
    page_response,
    read_body,
    read_id,
    read_id_cursor,
    read_limit,
    read_seq_cursor,
)

_TAG = "sessions"
_SESSIONS, _SESSION = "/v1/sessions", "/v1/sessions/{session_id}"


@attrs.frozen
class SessionRoutes:
    """The routes of sessions and messages."""

    sessions: Sessions

    @route(
        "POST",
        _SESSIONS,
        _TAG,
        Reply(201, "The session.", SessionJson, headers=["Location"]),
        body=NewSessionBody,
        problems=[NOT_FOUND],
    )
    async def create_session(self) -> Response:
        """Open a session with an agent."""
        body = await read_body(NewSessionBody)
        session = await self.sessions.create(scope(), read_id(body.agent_id), body.title)
        return json_response(SessionJson.of(session), 201, {"Location": f"/v1/sessions/{session.id}"})

    @page_route(_SESSIONS, _TAG, SessionPage)
    async def list_sessions(self) -> Response:
        """List the sessions you may see, newest first."""
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.sessions.list(scope(), before=before, limit=limit + 1)
        return await page_response(SessionPage, Page.of(rows, limit), lambda session: session.id)

    @route("GET", _SESSION, _TAG, Reply(200, "The session.", SessionJson))
    async def get_session(self, session_id: str) -> Response:
        """Get a session."""
        return json_response(SessionJson.of(await self.sessions.get(scope(), read_id(session_id))))

    @page_route(f"{_SESSION}/messages", _TAG, MessagePage)
    async def list_messages(self, session_id: str) -> Response:
        """List the messages of a session, oldest first."""
        session = await self.sessions.get(scope(), read_id(session_id))
        limit, after = read_limit(request.args), read_seq_cursor(request.args)
        page = await self.sessions.message_page(scope(), session.id, after=after, limit=limit)
        return await page_response(MessagePage, page, lambda message: message.seq)

    @route(
        "POST",
        f"{_SESSION}/messages",
        _TAG,
        Reply(201, "The message.", MessageJson),
        body=NewMessageBody,
        problems=[SESSION_BUSY],
    )
    async def create_message(self, session_id: str) -> Response:
        """Add a message that belongs to no run.

        Possible only while the session has no queued or running run.
        """
        session = await self.sessions.get(scope(), read_id(session_id))
        body = (await read_body(NewMessageBody)).root
        message = await self.sessions.add_message(scope(), session.id, body.role, body.content)
        return json_response(MessageJson.of(message), 201)
