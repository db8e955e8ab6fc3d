"""The API over a real socket: a server, two tenants, and clients that act as the people in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import attrs
import httpx
import trio

from hango.db.pool import Pool
from hango.domain import Role, Session, User, new_id
from hango.providers import DemoProvider, OpenAIProvider
from hango.store import Stores
from hango.store.accounts import Accounts
from hango.store.queue import RunQueue
from hango.testing import FakeProvider
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql
from hango.testing.serving import Server, running_server
from hango.web.app import WebSettings
from hango.web.models.requests import Registered
from hango.web.server.limits import ConnectionLimits

from support.openapi_contract import keeps_its_promise

__all__ = ["Server"]

SETTINGS = WebSettings(
    Registered(
        providers={"fake", "demo", "openai"},
        tools={"get_time", "http_fetch"},
        guardrails={"no_shell"},
        verifiers={"all_todos_done"},
        made_providers={"fake": FakeProvider([]), "demo": DemoProvider(), "openai": OpenAIProvider()},
    ),
    max_body=256 * 1024,
    max_live_runs=3,
)


@attrs.frozen
class Api:
    """A running server over a populated database.

    Attributes:
        acme, globex: two tenants that must not see each other.
        keys: of every user, by user id.
    """

    server: Server
    pool: Pool
    acme: SeededTenant
    globex: SeededTenant
    keys: dict[UUID, str]

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url

    def client(self, user: User | None = None, *, key: str | None = None) -> httpx.AsyncClient:
        """Make a client that acts as *user*, or with *key*, or without any.

        What it is answered must be what the OpenAPI document says.
        """
        key = self.keys[user.id] if user else key
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            trust_env=False,
            timeout=30,
            event_hooks={"response": [keeps_its_promise]},
        )

    def as_role(self, role: Role, world: SeededTenant | None = None) -> httpx.AsyncClient:
        """Make a client that acts as a tenant's user of that role; the tenant is acme by default."""
        return self.client((world or self.acme).users[role])

    def head(self, method: str, path: str, *headers: str) -> bytes:
        """Return the head of a request by acme's member, to be sent on a bare connection."""
        key = self.keys[self.acme.users[Role.MEMBER].id]
        lines = [f"{method} {path} HTTP/1.1", "Host: hango", f"Authorization: Bearer {key}", *headers]
        return "\r\n".join([*lines, "", ""]).encode()

    async def connect(self) -> trio.SocketStream:
        """Open a bare connection, to say what no client library would."""
        target = httpx.URL(self.url)
        return await trio.open_tcp_stream(target.host, target.port or 80)

    async def session(self, role: Role = Role.MEMBER) -> Session:
        """Open a session of acme, as the user of that role."""
        return await self.acme.session(role)

    async def count(self, table: str, where: str = "true") -> int:
        """Count rows."""
        found = await sql(self.pool, f"select count(*) as n from {table} where {where}")  # noqa: S608  # a test's own words
        return int(str(found[0]["n"]))

    def worker(self) -> RunQueue:
        """Stand for a process that executes runs."""
        return RunQueue(self.pool, new_id(), 90.0, 10)


@asynccontextmanager
async def running(
    pool: Pool,
    settings: WebSettings = SETTINGS,
    *,
    bind: str = "127.0.0.1:0",
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  # frozen
    graceful: float = 5.0,
    doorbell: Pool | None = None,
) -> AsyncIterator[Server]:
    """Run a server; it is shut down at the end, and must come to its own.

    Where *doorbell* is given, it is that database's.
    """
    stores = attrs.evolve(Stores.on(pool), pool=doorbell or pool)
    async with running_server(stores, settings, bind=bind, limits=limits, graceful=graceful) as server:
        yield server


@asynccontextmanager
async def serving(
    pool: Pool,
    settings: WebSettings = SETTINGS,
    *,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  # frozen
    graceful: float = 5.0,
    doorbell: Pool | None = None,
) -> AsyncIterator[Api]:
    """Populate a database and serve it."""
    acme, globex = await make_seeded_tenant(pool, "acme"), await make_seeded_tenant(pool, "globex")
    users = [*acme.users.values(), *globex.users.values()]
    keys = {user.id: await _key(pool, user) for user in users}
    async with running(pool, settings, limits=limits, graceful=graceful, doorbell=doorbell) as server:
        yield Api(server, pool, acme, globex, keys)


async def _key(pool: Pool, user: User) -> str:
    return (await Accounts(pool).create_key(user.tenant_id, user.id, actor=None)).key


def is_problem(response: httpx.Response, status: int, code: str, field: str | None = None) -> bool:
    """Whether *response* is that error, in the one shape of errors; a wrong one is an assertion."""
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json", response.text
    assert (response.status_code, body["code"], body.get("field")) == (status, code, field), body
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return True
