"""A tenant that harms: runs that misbehave, floods of runs, and requests for big lists.

Rule: what its own runs come to is of no interest, as long as they end; all others must not notice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

import attrs
import trio

from hango.chaos import misbehaving, plugin, web_flood
from hango.chaos.misbehaving import Misbehaviour
from hango.chaos.postgres import retry
from hango.db.pool import Pool
from hango.domain import MessageRole, Role, Run, Scope, Session, TextBlock
from hango.store.accounts import Accounts
from hango.store.agents import Agents, NewAgent
from hango.store.runs import Runs
from hango.store.sessions import Sessions

_CANCEL_AFTER = 4.0  # seconds: two leases
_FLOOD_SESSIONS = 600
_FLOOD_CLIENTS = 8
_MAX_LIVE = 10_000
_BIG_MESSAGES = 200
_BIG = "big " * 4096  # 16 KiB
_PROMPT = "flood " * 256  # 1.5 KiB, so that a list of runs is big
_PAGE = 200


@attrs.define(eq=False)
class BadTenant:
    """The tenant, and its ways to do harm.

    Attributes:
        key: its API key.
        flooded: how many runs its floods queued.
    """

    _pool: Pool
    _scope: Scope
    key: str
    _rude: Sequence[Session]
    _quick: Sequence[Session]
    _big: Session
    flooded: int = 0

    @classmethod
    async def prepare(cls, pool: Pool) -> BadTenant:
        """Create it, with sessions and a long conversation."""
        accounts, sessions = Accounts(pool), Sessions(pool)
        tenant = await accounts.create_tenant("bad", "Bad")
        owner = await accounts.create_user(tenant.id, "owner@bad.test", Role.OWNER, actor=None)
        scope = Scope(tenant.id, owner.id, owner.role)
        key = (await accounts.create_key(tenant.id, owner.id, actor=None)).key

        async def open_sessions(slug: str, provider: str, count: int) -> Sequence[Session]:
            agent = await Agents(pool).create(
                tenant.id, NewAgent(slug, slug.title(), provider, "scripted"), actor=None
            )
            return [await sessions.create(scope, agent.id) for _ in range(count)]

        rude = await open_sessions("rude", misbehaving.PROVIDER, len(Misbehaviour))
        quick = await open_sessions("quick", plugin.QUICK, _FLOOD_SESSIONS + 1)
        for number in range(_BIG_MESSAGES):
            role: MessageRole = "assistant" if number % 2 else "user"
            await sessions.add_message(scope, quick[-1].id, role, (TextBlock(_BIG),))
        return cls(pool, scope, key, rude, quick[:-1], quick[-1])

    async def misbehave(self, pick: int) -> None:
        """Request a run that misbehaves, and cancel it after two leases."""
        misbehaviour = [*Misbehaviour][pick % len(Misbehaviour)]
        session = self._rude[pick % len(Misbehaviour)]
        run = await self._queue(session, misbehaving.prompt_of(misbehaviour))
        await trio.sleep(_CANCEL_AFTER)
        await retry(partial(Runs(self._pool).cancel, self._scope, run.id))

    async def flood_queue(self, count: int) -> None:
        """Queue *count* runs, as fast as possible."""
        left = iter(range(count))

        async def queue() -> None:
            for number in left:
                await self._queue(self._quick[number % _FLOOD_SESSIONS], _PROMPT)
                self.flooded += 1

        async with trio.open_nursery() as nursery:
            for _ in range(_FLOOD_CLIENTS):
                nursery.start_soon(queue)

    async def flood_web(self, url: str, seconds: float) -> None:
        """Have a hundred clients read big lists from a server, for *seconds*."""
        paths = (
            f"/v1/sessions/{self._big.id}/messages?limit=200",
            "/v1/runs?limit=200&include=input",
            "/v1/audit-events?limit=200",
            f"/v1/sessions/{self._big.id}/messages?limit=100",
        )
        command = [sys.executable, "-m", web_flood.__name__, url, str(seconds), *paths]
        await trio.run_process(command, env={**os.environ, web_flood.KEY: self.key}, check=False)

    async def _queue(self, session: Session, prompt: str) -> Run:
        text = (TextBlock(prompt),)
        create = partial(Runs(self._pool).create, self._scope, session.id, text, max_live=_MAX_LIVE)
        return await retry(create)

    async def cancel_all(self) -> None:
        """Cancel what misbehaves and has not ended."""
        for session in self._rude:
            for run in await retry(partial(self._runs_of, session)):
                if not run.state.terminal:
                    await retry(partial(Runs(self._pool).cancel, self._scope, run.id))

    async def _runs_of(self, session: Session) -> Sequence[Run]:
        return await Runs(self._pool).list(self._scope, session_id=session.id, limit=_PAGE)
