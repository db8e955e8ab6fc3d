"""``/v1/sessions`` and the messages in them.

Rule: whether the caller may see a session is asked first; only then is the body looked at, so that
no answer tells a stranger more than that there is nothing.  Only `hango.web` uses it.
"""

from __future__ import annotations

import attrs
from quart import Blueprint, Response, request

from hango.codec import blocks_from_json
from hango.domain import (
    Block,
    MessageRole,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from hango.errors import InvalidInput
from hango.store.sessions import Sessions
from hango.web.auth import scope
from hango.web.shapes import message_to_json, session_to_json
from hango.web.wire import (
    Fields,
    answer,
    page_to_json,
    read_fields,
    read_id,
    read_id_cursor,
    read_limit,
    read_seq_cursor,
)

MOST_BLOCKS = 1000  # of one message; real ones have a handful

_MAY_SAY: dict[MessageRole, tuple[type[Block], ...]] = {
    "user": (TextBlock, ToolResultBlock, OpaqueBlock),
    "assistant": (TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolUseBlock, OpaqueBlock),
}


@attrs.frozen
class SessionRoutes:
    """The routes of sessions and messages."""

    sessions: Sessions

    def blueprint(self) -> Blueprint:
        """Return the routes."""
        routes = Blueprint("sessions", __name__)
        routes.post("/sessions")(self.create)
        routes.get("/sessions")(self.list)
        routes.get("/sessions/<session_id>")(self.get)
        routes.get("/sessions/<session_id>/messages")(self.list_messages)
        routes.post("/sessions/<session_id>/messages")(self.add_message)
        return routes

    async def create(self) -> Response:
        """Open a session with an agent of the caller's tenant."""
        fields = await read_fields()
        agent_id, title = fields.text("agent_id"), fields.text("title", "")
        fields.end()
        session = await self.sessions.create(scope(), read_id(agent_id), title)
        return answer(session_to_json(session), 201, {"Location": f"/v1/sessions/{session.id}"})

    async def list(self) -> Response:
        """Answer a page of the sessions the caller may see, newest first."""
        limit, before = read_limit(request.args), read_id_cursor(request.args)
        rows = await self.sessions.list(scope(), before=before, limit=limit + 1)
        return answer(page_to_json(rows, limit, session_to_json, lambda session: session.id))

    async def get(self, session_id: str) -> Response:
        """Answer one session."""
        return answer(session_to_json(await self.sessions.get(scope(), read_id(session_id))))

    async def list_messages(self, session_id: str) -> Response:
        """Answer a page of a session's messages, oldest first."""
        session = await self.sessions.get(scope(), read_id(session_id))
        limit, after = read_limit(request.args), read_seq_cursor(request.args)
        rows = await self.sessions.messages(scope(), session.id, after=after, limit=limit + 1)
        return answer(page_to_json(rows, limit, message_to_json, lambda message: message.seq))

    async def add_message(self, session_id: str) -> Response:
        """Add a message to a session that has no live run."""
        session = await self.sessions.get(scope(), read_id(session_id))
        role, content = read_message(await read_fields())
        message = await self.sessions.add_message(scope(), session.id, role, content)
        return answer(message_to_json(message), 201)


def read_message(fields: Fields) -> tuple[MessageRole, tuple[Block, ...]]:
    """Read a message: its role, and blocks that such a role may say."""
    said_by = fields.known("role", _MAY_SAY)
    role: MessageRole = "user" if said_by == "user" else "assistant"
    content = read_blocks(fields, "content", _MAY_SAY[role])
    fields.end()
    return role, content


def read_blocks(fields: Fields, name: str, kinds: tuple[type[Block], ...]) -> tuple[Block, ...]:
    """Read a text, or a list of blocks of *kinds*, as blocks that say something.

    Raises:
        InvalidInput: it is blank (model APIs refuse that for ever after), of another kind, too many.
    """
    value = fields.take(name)
    blocks = (TextBlock(value),) if isinstance(value, str) else _read_list(value, name)
    for index, block in enumerate(blocks):
        if not isinstance(block, kinds):
            raise InvalidInput(f"must not be {block.TYPE} here", field=f"{name}.{index}.type")
    if all(isinstance(block, TextBlock) and not block.text.strip() for block in blocks):
        raise InvalidInput("must not be blank", field=name)
    return blocks


def _read_list(value: object, name: str) -> tuple[Block, ...]:
    if not isinstance(value, list):
        raise InvalidInput("must be a string or a list of blocks", field=name)
    if len(value) > MOST_BLOCKS:
        raise InvalidInput(f"must be at most {MOST_BLOCKS} blocks", field=name)
    try:
        return blocks_from_json(value)
    except InvalidInput as error:
        raise InvalidInput(str(error), field=f"{name}.{error.field}") from None
