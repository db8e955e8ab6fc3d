"""Thousands of random requests to a process: it answers each, and is what it was before.

``HANGO_TEST_FUZZ`` says how many (10000); ``HANGO_TEST_FUZZ_SEED`` which ones.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
import psutil
import trio
from hostile.fuzz import Requests
from hostile.fuzz_client import Client

from hango.db.pool import Pool
from hango.domain import Role, User
from hango.testing.plugin import SeededTenant, make_seeded_tenant

from support.processes import Running, started

COUNT = int(os.environ.get("HANGO_TEST_FUZZ", "10000"))
SEED = int(os.environ.get("HANGO_TEST_FUZZ_SEED", "1"))
CLIENTS = 4
WARM = 1000  # requests after which memory is measured for the first time
GROWTH = 20 * 2**20  # bytes it may grow afterwards


@asynccontextmanager
async def serving_process(database: str) -> AsyncIterator[tuple[Running, str]]:
    """Have a process that serves and executes, and its URL; it must drain well at the end."""
    settings = {"HANGO_DATABASE_URL": database, "HANGO_SESSION_IDLE_TIMEOUT": "1s"}
    async with started("serve", "--bind", "127.0.0.1:0", **settings) as process:
        url = (await process.line("listening on")).split("listening on ")[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_all, process)
            yield process, url
            process.signal(signal.SIGTERM)
        assert await process.process.wait() == 0


async def read_all(process: Running) -> None:
    """Read what the process says, or it would wait for a reader."""
    while await process._next() is not None:
        pass


async def test_thousands_of_random_requests_leave_a_process_as_it_was(
    database: str, pool: Pool
) -> None:
    """F04, F05, F06, F10: no error of ours, no traceback, no request unanswered, no memory kept."""
    acme = await make_seeded_tenant(pool, provider="demo")
    globex = await make_seeded_tenant(pool, "globex", provider="demo")
    async with serving_process(database) as (process, url):
        requests = await fuzzer(url, acme, globex)
        clients = [Client(url, requests) for _ in range(CLIENTS)]
        memory = psutil.Process(process.process.pid).memory_info
        await say(clients, WARM)
        before = memory().rss
        await say(clients, COUNT - WARM)
        grown = memory().rss - before
        for client in clients:
            await client.close()
        async with httpx.AsyncClient(base_url=url, trust_env=False) as asking:
            assert (await asking.get("/readyz")).status_code == 200
    assert [failure for client in clients for failure in client.failures] == []
    assert [line for line in process.lines if "Traceback" in line or "ERROR" in line] == []
    assert grown < GROWTH
    said = sum((client.statuses for client in clients), start=Counter[int]())
    assert said.total() == COUNT
    assert {200, 201, 202, 400, 401, 403, 404, 405, 415, 422} <= set(said)
    assert sum(client.connections for client in clients) < COUNT / 5


_WEIGHTS = {"post": 3, "patch": 2}  # what changes something is asked for more often


FIRST = 10  # of them at first: what the allocator keeps of these, it uses again for the others
ENDLESS = 40  # bodies without end; of each, the server takes a megabyte
PIECE = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"


async def test_bodies_without_end_leave_memory_as_it_was(database: str, pool: Pool) -> None:
    """F06: each is refused at its bound, however much more comes; nothing of them is kept."""
    world = await make_seeded_tenant(pool)
    session, owner = await world.session(), await key(world, world.users[Role.OWNER])
    lines = [
        f"POST /v1/sessions/{session.id}/runs HTTP/1.1",
        f"Authorization: Bearer {owner}",
        "Host: hango",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
    ]
    head = "\r\n".join([*lines, "", ""]).encode()
    async with serving_process(database) as (process, url):
        memory = psutil.Process(process.process.pid).memory_info
        answers = {await pour(url, head) for _ in range(FIRST)}
        before = memory().rss
        for _ in range(ENDLESS):
            answers.add(await pour(url, head))
        assert memory().rss - before < GROWTH
    assert answers == {b"413"}


async def pour(url: str, head: bytes) -> bytes:
    """Send a body that does not end until the server hangs up; return the status of its answer."""
    target = urlsplit(url)
    async with (
        await trio.open_tcp_stream(target.hostname or "", target.port or 80) as stream,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(send_on, stream, head)
        with trio.fail_after(30):
            answer = await stream.receive_some()
        nursery.cancel_scope.cancel()
    return answer.split(b" ")[1]


async def send_on(stream: trio.SocketStream, head: bytes) -> None:
    """Send *head*, and pieces of a body for as long as they are taken."""
    with contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(head)
        while True:
            await stream.send_all(PIECE)


async def say(clients: Sequence[Client], count: int) -> None:
    """Say *count* requests, over all clients at once."""
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(client.say, count // len(clients))


async def fuzzer(url: str, acme: SeededTenant, globex: SeededTenant) -> Requests:
    """Make requests for all that the server lists, by everybody but one user of each tenant."""
    owner = acme.users[Role.OWNER]
    people = [*acme.users.values(), owner, globex.users[Role.OWNER]]
    other = await acme.accounts.create_user(acme.tenant.id, "other@fuzz.test", Role.MEMBER, actor=None)
    spare = await acme.accounts.create_key(other.tenant_id, other.id, actor=None)
    session = await acme.session(Role.MEMBER)
    run = await acme.run(session, role=Role.MEMBER)
    hidden = await globex.session()
    ids = {
        "session_id": [session.id, hidden.id],
        "run_id": [run.id],
        "agent_id": [acme.agent.id, globex.agent.id],
        "user_id": [other.id],
        "key_id": [spare.id],
    }
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        paths: dict[str, dict[str, object]] = (await client.get("/openapi.json")).json()["paths"]
    operations = [
        (method.upper(), path)
        for path, of_path in paths.items()
        for method in of_path
        for _ in range(_WEIGHTS.get(method, 1))
    ]
    keys = [await key(acme, user) for user in people]
    chance = random.Random(SEED)  # noqa: S311 - not a secret
    known = {kind: [str(each) for each in some] for kind, some in ids.items()}
    return Requests(chance, operations, keys, known)


async def key(world: SeededTenant, user: User) -> str:
    """Make a key of *user*."""
    return (await world.accounts.create_key(user.tenant_id, user.id, actor=None)).key
