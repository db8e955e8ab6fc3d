"""The load: clients that ask for runs, and now and then take one back.

One rule: a client knows what it asked for.  It asks again, under the same key, until it has an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import attrs
import trio

from hango.chaos.faults import Client, Order, Script
from hango.chaos.plugin import PROVIDER
from hango.db.pool import Pool
from hango.domain import Message, Role, Run, Scope, Session, TextBlock
from hango.errors import SessionQueueFull, StoreUnavailable
from hango.store.accounts import Accounts
from hango.store.agents import Agents, NewAgent
from hango.store.runs import Runs
from hango.store.sessions import Sessions

T = TypeVar("T")

SESSIONS = 12  # more than the workers can be disturbed at once, fewer than they could serve
_MAX_LIVE = 5  # runs of a session, so that there is always work, and the end is not far
_PAGE = 200
_AGAIN = 0.1  # seconds


@attrs.define(eq=False)
class Load:
    """The clients, one a session, and what they asked for.

    Attributes:
        scripts: of the runs, by tag.
    """

    _pool: Pool
    _scope: Scope
    _clients: Sequence[tuple[Session, Client]]
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
            (await Sessions(pool).create(scope, agent.id), Client.of(seed, f"s{number}"))
            for number in range(1, SESSIONS + 1)
        ]
        return cls(pool, scope, clients)

    async def run(self) -> None:
        """Ask for runs until cancelled; what has been asked for by then stays asked for."""
        async with trio.open_nursery() as nursery:
            for session, client in self._clients:
                nursery.start_soon(self._serve, nursery, session, client)

    async def _serve(self, nursery: trio.Nursery, session: Session, client: Client) -> None:
        while True:
            order = client.next()
            await self._ask(nursery, session, order)
            await trio.sleep(order.then)

    async def ask(self, nursery: trio.Nursery, pick: int) -> None:
        """Let one client ask for a run out of turn."""
        session, client = self._clients[pick % len(self._clients)]
        await self._ask(nursery, session, client.next())

    async def _ask(self, nursery: trio.Nursery, session: Session, order: Order) -> None:
        self.scripts[order.script.tag] = order.script
        run = await _patiently(lambda: self._create(session, order.script))
        if order.cancel_after is not None:
            nursery.start_soon(self._cancel, run, order.cancel_after)

    async def _create(self, session: Session, script: Script) -> Run:
        said = (TextBlock(script.text),)
        created = await Runs(self._pool).create_once(
            self._scope, session.id, said, key=script.tag, max_live=_MAX_LIVE
        )
        return created.run

    async def _cancel(self, run: Run, after: float) -> None:
        await trio.sleep(after)
        await _patiently(lambda: Runs(self._pool).cancel(self._scope, run.id))

    # --- what became of it ------------------------------------------------------------------

    async def runs(self) -> Sequence[Run]:
        """Return all runs, as they are now, newest first."""
        found: list[Run] = []
        before: UUID | None = None
        stored = Runs(self._pool)
        while page := await _patiently(partial(stored.list, self._scope, before=before, limit=_PAGE)):
            found += page
            before = page[-1].id
        return found

    async def live(self) -> int:
        """Return how many runs have not ended."""
        return sum(not run.state.terminal for run in await self.runs())

    async def messages(self) -> Sequence[Message]:
        """Return all messages, those of a session together, oldest first."""
        return [message for session, _ in self._clients for message in await self._of(session)]

    async def _of(self, session: Session) -> Sequence[Message]:
        found: list[Message] = []
        while page := await Sessions(self._pool).messages(
            self._scope, session.id, after=len(found), limit=_PAGE
        ):
            found += page
        return found


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is a database that answers, and room."""
    while True:
        try:
            return await ask()
        except (StoreUnavailable, SessionQueueFull):
            await trio.sleep(_AGAIN)
