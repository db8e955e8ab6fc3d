"""Sessions and their messages, as users see them; every call is bounded by `visibility`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import attrs
import trio

from hango.codec import blocks_to_json, clean_text, dump_json
from hango.db.connections import Connection
from hango.db.pool import Pool
from hango.db.queries import QUERIES
from hango.db.units import execute
from hango.domain import Block, Message, MessageRole, Scope, Session, ToolUseBlock, new_id
from hango.errors import NotFound, SessionBusy
from hango.store import rows
from hango.store.pages import MAX_PAGE_BYTES, Page
from hango.store.visibility import visibility

INSERT_SESSION = QUERIES["insert_session"]
GET_SESSION = QUERIES["get_session"]
LIST_SESSIONS = QUERIES["list_sessions"]
LIST_OWN_SESSIONS = QUERIES["list_own_sessions"]
LIST_MESSAGES = QUERIES["list_messages"]
LOCK_SESSION = QUERIES["lock_session"]
INSERT_MESSAGE = QUERIES["insert_message"]


@attrs.define
class Sessions:
    """The conversations of a tenant."""

    _pool: Pool

    async def create(self, scope: Scope, agent_id: UUID, title: str = "") -> Session:
        """Open a session with an agent of the tenant.

        Raises:
            NotFound: the tenant has no such agent.
        """
        created = await self._pool.write(
            INSERT_SESSION,
            session_id=new_id(),
            tenant_id=scope.tenant_id,
            user_id=scope.user_id,
            agent_id=agent_id,
            title=clean_text(title),
            audit_id=new_id(),
        )
        if not created:
            raise NotFound("there is no such agent")
        return rows.session(created[0])

    async def get(self, scope: Scope, session_id: UUID) -> Session:
        """Return one session.

        Raises:
            NotFound: there is none that *scope* may see.
        """
        row = await self._pool.one(GET_SESSION, session_id=session_id, **visibility(scope))
        if row is None:
            raise NotFound("there is no such session")
        return rows.session(row)

    async def list(
        self, scope: Scope, *, before: UUID | None = None, limit: int = 50
    ) -> Sequence[Session]:
        """Return up to *limit* sessions older than *before*, newest first."""
        query = LIST_SESSIONS if scope.role.administers else LIST_OWN_SESSIONS
        found = await self._pool.rows(query, before=before, limit=limit, **visibility(scope))
        return [rows.session(row) for row in found]

    async def messages(
        self, scope: Scope, session_id: UUID, *, after: int = 0, limit: int = 50
    ) -> Sequence[Message]:
        """Return up to *limit* messages whose seq is above *after*, oldest first, however large.

        Raises:
            NotFound: there is no such session that *scope* may see.
        """
        page = await self.message_page(scope, session_id, after=after, limit=limit, max_bytes=None)
        return page.rows

    async def message_page(
        self,
        scope: Scope,
        session_id: UUID,
        *,
        after: int = 0,
        limit: int = 50,
        max_bytes: int | None = MAX_PAGE_BYTES,
    ) -> Page[Message]:
        """Return a page of messages whose seq is above *after*, oldest first.

        Raises:
            NotFound: there is no such session that *scope* may see.
        """
        found = await self._pool.rows(
            LIST_MESSAGES,
            session_id=session_id,
            after=after,
            limit=limit,
            max_bytes=max_bytes,
            **visibility(scope),
        )
        if not found:
            await self.get(scope, session_id)
        return await Page.read(found, rows.message)

    async def add_message(
        self, scope: Scope, session_id: UUID, role: MessageRole, content: tuple[Block, ...]
    ) -> Message:
        """Add a message that belongs to no run.

        Raises:
            NotFound: there is no such session that *scope* may see.
            SessionBusy: a run of the session is queued or running.
        """
        said = await _dumped(content)

        async def add(connection: Connection) -> Message:
            async with connection.transaction():
                seen = visibility(scope)
                if not await execute(connection, LOCK_SESSION, session_id=session_id, **seen):
                    raise NotFound("there is no such session")
                created = await execute(
                    connection,
                    INSERT_MESSAGE,
                    session_id=session_id,
                    message_id=new_id(),
                    role=role,
                    content=said,
                    user_id=scope.user_id,
                    audit_id=new_id(),
                )
                if not created:
                    raise SessionBusy("a run of this session is queued or running")
                return rows.message(created[0], content)

        return await self._pool.unit(add)


async def _dumped(content: tuple[Block, ...]) -> str:
    """Write blocks as JSON; in a thread where they may hold very many values."""
    if any(isinstance(block, ToolUseBlock) for block in content):
        return await trio.to_thread.run_sync(lambda: dump_json(blocks_to_json(content)))
    return dump_json(blocks_to_json(content))
