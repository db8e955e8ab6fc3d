"""The load: clients that request runs, and now and then cancel one.

Rule: a client repeats a request, with the same idempotency key, until it has an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import attrs
import trio

from hango.chaos.plugin import PROVIDER
from hango.chaos.postgres import retry
from hango.chaos.scripts import ClientPlan, RunRequest, Script
from hango.db.pool import Pool
from hango.domain import Message, Role, Run, Scope, Session, TextBlock
from hango.store.accounts import Accounts
from hango.store.agents import Agents, NewAgent
from hango.store.runs import Runs
from hango.store.sessions import Sessions

SESSIONS = 12  # more than the faults hit at once, fewer than the workers could serve
_MAX_LIVE = 5  # runs of a session, so that there is always work, and all of it ends soon
_PAGE = 200


@attrs.define(eq=False)
class Load:
    """One client for each session, and what they requested.

    Attributes:
        scripts: of the runs, by tag.
    """

    _pool: Pool
    _scope: Scope
    _clients: Sequence[tuple[Session, ClientPlan]]
    scripts: dict[str, Script] = attrs.field(factory=dict)

    @classmethod
    async def prepare(cls, pool: Pool, seed: int) -> Load:
        """Populate an empty database."""
        accounts = Accounts(pool)
        tenant = await accounts.create_tenant("chaos", "Chaos")
        owner = await accounts.create_user(tenant.id, "owner@chaos.test", Role.OWNER, actor=None)
        new = NewAgent("chaos", "Chaos", PROVIDER, "scripted")
        agent = await Agents(pool).create(tenant.id, new, actor=None)
        scope = owner.scope
        clients = [
            (await Sessions(pool).create(scope, agent.id), ClientPlan.of(seed, f"s{number}"))
            for number in range(1, SESSIONS + 1)
        ]
        return cls(pool, scope, clients)

    async def run(self) -> None:
        """Request runs until cancelled."""
        async with trio.open_nursery() as nursery:
            for session, client in self._clients:
                nursery.start_soon(self._run_client, nursery, session, client)

    async def _run_client(self, nursery: trio.Nursery, session: Session, client: ClientPlan) -> None:
        while True:
            request = client.next()
            await self._send(nursery, session, request)
            await trio.sleep(request.pause)

    async def request_one(self, nursery: trio.Nursery, pick: int) -> None:
        """Let one client make its next request at once."""
        session, client = self._clients[pick % len(self._clients)]
        await self._send(nursery, session, client.next())

    async def _send(self, nursery: trio.Nursery, session: Session, request: RunRequest) -> None:
        self.scripts[request.script.tag] = request.script
        run = await retry(lambda: self._create(session, request.script))
        if request.cancel_after is not None:
            nursery.start_soon(self._cancel, run, request.cancel_after)

    async def _create(self, session: Session, script: Script) -> Run:
        prompt = (TextBlock(script.text),)
        created = await Runs(self._pool).create_once(
            self._scope, session.id, prompt, key=script.tag, max_live=_MAX_LIVE
        )
        return created.run

    async def _cancel(self, run: Run, delay: float) -> None:
        await trio.sleep(delay)
        await retry(lambda: Runs(self._pool).cancel(self._scope, run.id))

    # --- what became of the runs ------------------------------------------------------------

    async def runs(self) -> Sequence[Run]:
        """Return all runs as they are now, newest first."""
        found: list[Run] = []
        before: UUID | None = None
        stored = Runs(self._pool)
        while page := await retry(partial(stored.list, self._scope, before=before, limit=_PAGE)):
            found += page
            before = page[-1].id
        return found

    async def messages(self) -> Sequence[Message]:
        """Return all messages, session by session, oldest first."""
        return [message for session, _ in self._clients for message in await self._of(session)]

    async def _of(self, session: Session) -> Sequence[Message]:
        found: list[Message] = []
        while page := await Sessions(self._pool).messages(
            self._scope, session.id, after=len(found), limit=_PAGE
        ):
            found += page
        return found
