"""Thousands of hostile connections at a process that executes runs: it lives, and is as before.

Half of them are rows of the table, changed at random; half are random frames of HTTP/2 and WebSocket.
``HANGO_TEST_STORM`` says how many of each (300), ``HANGO_TEST_STORM_SEED`` which ones.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import attrs
import httpx
import psutil
import pytest
import trio
from hostile.connections import GET, Player, Row, frame, post_with, read_table
from hostile.test_fuzz import key, serving_process

from hango.db.pool import Pool
from hango.domain import Role
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql

COUNT = int(os.environ.get("HANGO_TEST_STORM", "300"))
SEED = int(os.environ.get("HANGO_TEST_STORM_SEED", "1"))
AT_ONCE = 32  # connections
RUNS_AT_ONCE = 4
WARM = 100  # connections of each kind after which memory is measured for the first time
GROWTH = 20 * 2**20  # bytes it may grow afterwards
POOL = 10  # connections to the database, which are opened when they are needed
FAULTS = ("Traceback", " ERROR ", "a connection failed")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
UPGRADE = b"GET /healthz HTTP/1.1\r\nHost: hango\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "
OPENINGS = (
    b"",
    GET,
    PREFACE,
    PREFACE + frame(4, 0, 0, b""),
    UPGRADE + b"h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
    UPGRADE + b"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n",
)
PIECES = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"\xff",
    b"0\r\n\r\n",
    b"\r\nContent-Length: 5",
    b"\r\nTransfer-Encoding: chunked",
    b"\r\nConnection: close",
    b"\r\nUpgrade: h2c",
    b"\r\nExpect: 100-continue",
    b"HTTP/2.0",
    b"HEAD",
    PREFACE,
    GET,
)
LEAVING = (b"<leave>", b"<reset>", b"<shut>", b"<pause>")


@attrs.frozen
class Storm:
    """Random connections, the same for the same seed.

    Attributes:
        rows: of the table.
    """

    chance: random.Random
    rows: Sequence[Row]

    def changed(self) -> Row:
        """Make a row of the table, with its text changed here and there."""
        row = self.chance.choice(self.rows)
        steps = [step if step.startswith(b"<") else self._text(step) for step in row.steps]
        return Row(row.name, (), "left", (*steps, *self._end()))

    def frames(self) -> Row:
        """Make a few random frames, after one of several openings."""
        kinds = [self._frame, self._message]
        sent = [self.chance.choice(kinds)() for _ in range(self.chance.randint(1, 20))]
        steps = (self.chance.choice(OPENINGS) + b"".join(sent), *self._end())
        return Row("frames", (), "left", steps)

    def _end(self) -> list[bytes]:
        return self.chance.choices(LEAVING, k=self.chance.randint(1, 2))

    def _text(self, text: bytes) -> bytes:
        for _ in range(self.chance.randint(0, 4)):
            at = self.chance.randint(0, min(len(text), 400))
            end = at + self.chance.choice((0, 0, 1, 1, 10, 100))
            piece = self.chance.choice((b"", self.chance.choice(PIECES), self.chance.randbytes(1)))
            text = text[:at] + piece + text[end:]
        return text

    def _frame(self) -> bytes:
        flags, stream = self.chance.choice((0, 1, 4, 5, 255)), self.chance.choice((0, 1, 2, 3, 2**31))
        payload = self.chance.randbytes(self.chance.choice((0, 1, 4, 5, 6, 8, 300)))
        whole = frame(self.chance.randint(0, 11), flags, stream, payload)
        return whole[: self.chance.choice((len(whole), len(whole), 5))]

    def _message(self) -> bytes:
        head = bytes([self.chance.randrange(256), self.chance.randrange(256)])
        return head + self.chance.randbytes(self.chance.choice((0, 4, 130)))


async def make(url: str, rows: Sequence[Row]) -> None:
    """Make these connections, a number of them at once, and read a little of what they are answered."""
    left = iter(rows)

    async def some() -> None:
        for row in left:
            player = await Player.connected(url, row)
            async with player.stream:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    with trio.move_on_after(5):
                        await player.play(row)
                    with trio.move_on_after(0.01):
                        await player.stream.receive_some()

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(some)


async def run_on(client: httpx.AsyncClient, world: SeededTenant, stop: trio.Event) -> int:
    """Ask for one run after the other until *stop*; return how many there were, all succeeded."""
    count = 0
    while not stop.is_set() or not count:
        session = await world.session(Role.MEMBER)
        made = await client.post(f"/v1/sessions/{session.id}/runs", json={"input": f"run {count}"})
        assert made.status_code == 202, made.text
        while (run := await client.get(made.headers["Location"], headers={"Prefer": "wait=30"})).json()[
            "state"
        ] in {"queued", "running"}:
            pass
        assert run.json()["state"] == "succeeded", run.text
        count += 1
    return count


async def blow(storm: Storm, client: httpx.AsyncClient, world: SeededTenant, count: int) -> int:
    """Make *count* connections of each kind while runs are executed; return how many runs."""
    stop, counts = trio.Event(), list[int]()

    async def runs() -> None:
        counts.append(await run_on(client, world, stop))

    async with trio.open_nursery() as nursery:
        for _ in range(RUNS_AT_ONCE):
            nursery.start_soon(runs)
        kinds = [it for _ in range(count) for it in (storm.changed(), storm.frames())]
        await make(str(client.base_url), kinds)
        stop.set()
    return sum(counts)


@pytest.mark.rule(27, 29)
async def test_a_storm_of_connections_leaves_a_process_as_it_was(database: str, pool: Pool) -> None:
    """S-H1, S-H2, S-M2: nothing is left of it, nothing failed in it, and runs went on meanwhile."""
    world = await make_seeded_tenant(pool, provider="demo")
    member = await key(world, world.users[Role.MEMBER])
    storm = Storm(random.Random(SEED), read_table({"post": post_with(member)}))  # noqa: S311  # no secret
    async with serving_process(database) as (process, url):
        headers = {"Authorization": f"Bearer {member}"}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, trust_env=False, timeout=60
        ) as client:
            here = psutil.Process(process.process.pid)
            await blow(storm, client, world, WARM)
            _, files, memory = await at_rest(here, url)
            runs = await blow(storm, client, world, COUNT)
            connections, files_then, memory_then = await at_rest(here, url)
            assert (await client.get("/healthz")).status_code == 200
    figures = f"{runs} runs; {files_then - files} files and {memory_then - memory} bytes more"
    print(figures)  # noqa: T201  # the figures of a storm at its full size
    assert connections <= RUNS_AT_ONCE
    assert files_then - files <= POOL, figures
    assert memory_then - memory < GROWTH, figures
    assert [line for line in process.lines if any(it in line for it in FAULTS)] == []
    executed = await sql(pool, "select max(claim_epoch) as epoch, max(reclaims) as reclaims from runs")
    assert [tuple(row) for row in executed] == [(1, 0)]


async def at_rest(process: psutil.Process, url: str) -> tuple[int, int, int]:
    """Return HTTP connections, descriptors and memory, once what is closing has closed."""
    port = urlsplit(url).port
    open_now, seen = 0, -1
    with trio.move_on_after(30):
        while open_now != seen or open_now > RUNS_AT_ONCE:  # of the client that asks for runs
            seen = open_now
            await trio.sleep(0.2)
            here = [it for it in process.net_connections("tcp") if it.laddr.port == port]
            open_now = len([it for it in here if it.status != psutil.CONN_LISTEN])
    return open_now, process.num_fds(), process.memory_info().rss
