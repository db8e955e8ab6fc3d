"""The table of hostile connections, against a server: each ends as it must, and leaves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import httpx
import psutil
import pytest
import trio
from hostile.connections import (
    ENDS,
    GET,
    TABLE,
    Player,
    Row,
    connect,
    expected,
    post_with,
    read_table,
)
from trio.testing import wait_all_tasks_blocked

from hango.db.pool import Pool
from hango.domain import Role
from hango.web.server.limits import ConnectionLimits

from support.api import SETTINGS, Api, serving

SHORT = ConnectionLimits(keep_alive=0.3, head=0.3, stall=0.3, linger=0.3)
MAX_WRONG = 2
ROWS = read_table({"post": b""})


def test_the_table_is_sound() -> None:
    """It has at least 150 rows, no two of one name, and ends in the words it explains."""
    names = [row.name for row in ROWS]
    assert len(names) >= 150
    assert len(set(names)) == len(names)
    assert {row.end for row in ROWS} == set(ENDS)
    assert all(f"#   {end}" in TABLE.read_text("utf-8") for end in ENDS)


@pytest.mark.rule(27)
async def test_every_connection_ends_as_it_must(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """S-H1, S-M2, S-M6, S-M9, S-L14: it is answered or refused, and costs nobody else anything."""
    async with serving(pool) as api:
        rows = [row for row in rows_for(api) if row.end in {"open", "closed", "left"}]
        wrong = [it async for it in played(api, rows)]
    assert wrong == [], "\n".join(wrong)
    assert "a connection failed" not in caplog.text  # the border is there for what is not known yet


@pytest.mark.rule(29)
async def test_no_connection_stays_unused(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """S-H2, S-M2: a client that says nothing or too little, or does not read, is closed."""
    settings = attrs.evolve(SETTINGS, body_timeout=0.3)
    async with serving(pool, settings, limits=SHORT) as api:
        rows = rows_for(api)
        wrong = [it async for it in played(api, [row for row in rows if row.end == "cut"])]
        found: dict[str, str] = {}
        tasks = await tasks_of_nobody(api)
        async with trio.open_nursery() as nursery:
            for row in rows:
                if row.end == "late":
                    nursery.start_soon(note, api, row, found, tasks)
        wrong += [await what_is_left(api, tasks)]
    assert wrong == [""], "\n".join(wrong)
    assert found == {row.name: expected(row) for row in rows if row.end == "late"}
    assert "a connection failed" not in caplog.text


def rows_for(api: Api) -> list[Row]:
    """Return the rows, with a key of this server's."""
    return read_table({"post": post_with(api.keys[api.acme.users[Role.MEMBER].id])})


async def played(api: Api, rows: list[Row]) -> AsyncIterator[str]:
    """Make the connections of *rows*, one after the other; yields what was not as it must be.

    Ends after the first few, since each may have taken its time.
    """
    tasks, wrong = await tasks_of_nobody(api), 0
    for row in rows:
        found: dict[str, str] = {}
        await note(api, row, found, tasks)
        left = await what_is_left(api, tasks)
        if found[row.name] != expected(row) or left:
            yield f"{row.name}: {found[row.name]} instead of {expected(row)}; {left}"
            wrong += 1
            if wrong == MAX_WRONG:
                return


async def note(api: Api, row: Row, found: dict[str, str], tasks: int) -> None:
    """Make the connection of *row*, and note its outcome; *tasks* are there without it."""
    player = await Player.connected(api.url, row)
    async with player.stream:
        if row.end == "cut":
            await player.send_what_is_taken(row)
            found[row.name] = "cut" if await has_only(tasks) else "not cut"
        else:
            await player.play(row)
            found[row.name] = "left" if row.end == "left" else await player.outcome(row)


async def what_is_left(api: Api, tasks: int) -> str:
    """Return what there is beside *tasks* and a server that answers; empty when there is nothing."""
    async with await connect(api.url) as stream:
        await stream.send_all(GET)
        if not (await stream.receive_some()).startswith(b"HTTP/1.1 200 "):
            return "it does not answer"
    if not await has_only(tasks):
        return "tasks are left"
    with trio.move_on_after(30):
        while sockets_of(api):  # noqa: ASYNC110  # the kernel has no event for it
            await trio.sleep(0.005)
        return ""
    return f"sockets are left: {sockets_of(api)}"


def sockets_of(api: Api) -> list[str]:
    """Return the server's sockets, beside the one that listens."""
    port = httpx.URL(api.url).port
    here = [it for it in psutil.Process().net_connections("tcp") if it.laddr.port == port]
    return [it.status for it in here if it.status != psutil.CONN_LISTEN]


async def tasks_of_nobody(api: Api) -> int:
    """Return how many tasks there are while no client is connected."""
    async with api.as_role(Role.MEMBER) as client:
        await client.get("/v1/me")  # so that what is opened once, is
    await wait_all_tasks_blocked(0.1)
    return living_tasks()


def living_tasks() -> int:
    """Count the tasks there are, but for those of database connections, which the pool keeps open."""
    root = trio.lowlevel.current_root_task()
    waiting, count = [root] if root else [], 0
    while waiting:
        task = waiting.pop()
        if "trio_asyncio" in task.coro.__qualname__ or "trio_asyncio" in task.name:
            continue
        count += 1
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return count


async def has_only(tasks: int) -> bool:
    """Wait until there are only that many tasks, and return True; False if that takes too long."""
    with trio.move_on_after(30):
        while living_tasks() > tasks:  # noqa: ASYNC110  # no event
            await trio.sleep(0.005)
        return True
    return False
