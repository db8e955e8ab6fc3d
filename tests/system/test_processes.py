"""The life of a process: started, shared with others, drained, killed.  All of them are real."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from hango.db.pool import open_pool
from hango.domain import Role, Run, RunState
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql

from support.llm_server import LlmServer, Reply, delta, finish, serve_llm, sse, stream_reply
from support.processes import Running, data_folder, environment, hango, started, until

CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_time", "arguments": '{"timezone": "Asia/Tokyo"}'},
}
ASKS = sse(delta(tool_calls=[CALL]), finish("tool_calls"))
SAYS = sse(delta(content="done"), finish("stop"))
SERVE = ("serve", "--bind", "127.0.0.1:0")


@pytest.fixture
def embedded() -> Iterator[tuple[Path, str]]:
    """Have a data folder, with its server running; also its database's URL."""
    with data_folder() as folder:
        yield folder


async def url_of(process: Running) -> str:
    """Wait until it answers; return where."""
    return (await process.line("listening on")).split("listening on ")[1]


@asynccontextmanager
async def client_of(world: SeededTenant, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Have a client of the API that acts as the tenant's owner."""
    owner = world.users[Role.OWNER]
    key = await world.accounts.create_key(owner.tenant_id, owner.id, actor=None)
    headers = {"Authorization": f"Bearer {key.key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
        yield client


async def pasted(line: str) -> str:
    """Do as a user does who pastes *line* into a shell."""
    done = await trio.run_process(["sh", "-c", line], capture_stdout=True, env=environment())
    return done.stdout.decode()


async def ended(world: SeededTenant, run: Run) -> Run:
    """Wait until the run has ended."""
    with trio.fail_after(60):
        async with world.pool.listen() as rings:
            while not (run := await world.reload(run)).state.terminal:
                await rings.__anext__()
    return run


@asynccontextmanager
async def waiting_run(
    database: str, *replies: Reply, **settings: str
) -> AsyncIterator[tuple[SeededTenant, Run, LlmServer, Mapping[str, str]]]:
    """Have a queued run of an agent whose model says *replies*, and what to start processes with."""
    async with open_pool(database) as pool, serve_llm(*replies) as llm:
        world = await make_seeded_tenant(pool, provider="openai")
        run = await world.run(await world.session())
        yield world, run, llm, {"HANGO_DATABASE_URL": database, "OPENAI_BASE_URL": llm.url, **settings}


async def test_an_idle_server_drains_at_once_and_exits_with_0(database: str) -> None:
    """SIGTERM is the ordinary end: ready before, and no error after."""
    async with started(*SERVE, HANGO_DATABASE_URL=database) as server:
        async with httpx.AsyncClient(base_url=await url_of(server), trust_env=False) as client:
            assert (await client.get("/readyz")).status_code == 200
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
    assert not any("ERROR" in line or "WARNING" in line for line in server.lines), server.lines


async def test_a_drained_run_is_handed_over_at_its_turn_boundary(database: str) -> None:
    """D16: the turn under way is finished and stored, and another process goes on after it."""
    hold = trio.Event()
    replies = (stream_reply(hold, ASKS), stream_reply(SAYS))
    async with waiting_run(database, *replies) as (world, run, llm, settings):
        async with started(*SERVE, **settings) as first:
            await until(llm.asked())
            first.signal(signal.SIGTERM)
            await first.line("draining")
            hold.set()
            assert await first.ended() == 0
        handed = await world.reload(run)
        assert handed.state is RunState.QUEUED
        assert handed.resume_turn == 1
        assert handed.reclaims == 0
        async with started(*SERVE, **settings):
            done = await ended(world, run)
    assert done.state is RunState.SUCCEEDED
    assert done.iterations == 2
    assert len(llm.received) == 2


async def test_what_is_not_done_in_time_is_cut_short_and_released(database: str) -> None:
    """D16: a model that never answers cannot hold a process; the run waits for the next one."""
    async with waiting_run(database, stream_reply(trio.Event()), HANGO_DRAIN_TIMEOUT="0s") as (
        world,
        run,
        llm,
        settings,
    ):
        async with started(*SERVE, **settings) as server:
            await until(llm.asked())
            server.signal(signal.SIGTERM)
            assert await server.ended() == 0
        left = await world.reload(run)
    assert left.state is RunState.QUEUED
    assert left.resume_turn == 0
    assert left.reclaims == 0


async def test_a_signal_that_arrives_twice_is_one(database: str) -> None:
    """A parent passes it on, and its whole group gets it: that is no second wish."""
    async with started(*SERVE, HANGO_DATABASE_URL=database) as server:
        await url_of(server)
        await server.line("executing")
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)
        assert await server.ended() == 0


async def test_a_second_signal_ends_at_once(database: str) -> None:
    """Nothing is waited for and nothing released: the run still counts as running."""
    async with waiting_run(database, stream_reply(trio.Event())) as (world, run, llm, settings):
        async with started(*SERVE, **settings) as server:
            await until(llm.asked())
            server.signal(signal.SIGTERM)
            await server.line("a second signal ends the process at once")
            server.signal(signal.SIGTERM)
            assert await server.ended() == 128 + signal.SIGTERM
        assert (await world.reload(run)).state is RunState.RUNNING


DEAF = """
import trio
from hango import Effects, tool

@tool(effects=Effects.READ_ONLY)
async def get_deaf() -> str:
    "Swallow every cancellation."
    print("deaf", flush=True)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

def register(plugins):
    plugins.tool(get_deaf)
"""


async def test_a_tool_that_cannot_be_cancelled_does_not_keep_the_process(
    database: str, tmp_path: Path
) -> None:
    """C07, D16: past its time the process ends without it; the lease says when another goes on."""
    (tmp_path / "deaf_plugin.py").write_text(DEAF)
    asks = sse(delta(tool_calls=[CALL | {"function": {"name": "get_deaf"}}]), finish("tool_calls"))
    wanted = {"PYTHONPATH": str(tmp_path), "HANGO_PLUGINS": "deaf_plugin", "HANGO_DRAIN_TIMEOUT": "0s"}
    async with waiting_run(database, stream_reply(asks), **wanted) as (world, run, _, settings):
        async with started(*SERVE, **settings) as server:
            await server.line("deaf")
            server.signal(signal.SIGTERM)
            await server.line("ignores its cancellation")
            assert await server.ended() == 128 + signal.SIGTERM
        assert (await world.reload(run)).state is RunState.RUNNING


@pytest.mark.rule(5)
@pytest.mark.rule(8)
async def test_a_killed_process_is_replaced_by_another_without_repeating_a_turn(database: str) -> None:
    """D01: when the lease has lapsed, a peer goes on from the last finished turn."""
    replies = (stream_reply(ASKS), stream_reply(trio.Event()), stream_reply(SAYS))
    fast = {"HANGO_RUN_LEASE_TTL": "2s", "HANGO_RUN_RECLAIM_INTERVAL": "100ms"}
    async with waiting_run(database, *replies, **fast) as (world, run, llm, settings):
        async with started(*SERVE, **settings) as victim:
            await until(llm.asked(2))
            victim.signal(signal.SIGKILL)
            assert await victim.ended() == -signal.SIGKILL
        async with started(*SERVE, **settings):
            done = await ended(world, run)
    assert done.state is RunState.SUCCEEDED
    assert done.iterations == 2
    assert len(llm.received) == 3


async def test_web_and_worker_can_be_processes_of_their_own(database: str) -> None:
    """The one answers and executes nothing, the other executes and listens to nothing."""
    async with (
        waiting_run(database, stream_reply(SAYS)) as (world, run, _, settings),
        started(*SERVE, **settings, HANGO_ROLE="web") as web,
        client_of(world, await url_of(web)) as client,
    ):
        assert (await client.get(f"/v1/runs/{run.id}")).json()["state"] == "queued"
        async with started("serve", **settings, HANGO_ROLE="worker") as worker:
            await ended(world, run)
            assert (await client.get(f"/v1/runs/{run.id}")).json()["state"] == "succeeded"
            worker.signal(signal.SIGTERM)
            assert await worker.ended() == 0
        web.signal(signal.SIGTERM)
        assert await web.ended() == 0
    assert not any("listening" in line for line in worker.lines)


async def test_an_address_in_use_is_a_line_that_says_so(database: str) -> None:
    """No traceback for the most ordinary mistake there is."""
    async with started(*SERVE, HANGO_DATABASE_URL=database) as server:
        address = (await url_of(server)).removeprefix("http://")
        second = await hango("serve", "--bind", address, HANGO_DATABASE_URL=database)
    assert second.code == 2
    assert f"HANGO_BIND: cannot listen on {address}" in second.err
    assert "Traceback" not in second.err


async def test_processes_share_the_embedded_server(embedded: tuple[Path, str]) -> None:
    """Whoever comes first starts it, and it stays while anybody is there."""
    data = {"HANGO_DATA_DIR": str(embedded[0])}
    async with started(*SERVE, **data) as first, started(*SERVE, **data) as second:
        await url_of(first)
        url = await url_of(second)
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            assert (await client.get("/readyz")).status_code == 200
        made = await hango("tenant", "create", "acme", **data)
        assert made.code == 0, made.err


async def test_dev_prints_calls_that_work_when_pasted(embedded: tuple[Path, str]) -> None:
    """From nothing to an answer: start, paste one line, paste the other."""
    folder, dsn = embedded
    async with started("dev", "--bind", "127.0.0.1:0", HANGO_DATA_DIR=str(folder)) as dev:
        assert (await dev.line("key ")).startswith("key hgo_")
        ask, read = await dev.line("curl"), await dev.line("curl")
        async with open_pool(dsn) as pool, pool.listen() as rings:
            assert '"queued"' in await pasted(ask)
            async for _ in rings:
                if not await sql(pool, "select from runs where finished_at is null"):
                    break
        answer = await pasted(read)
        dev.signal(signal.SIGINT)
        assert await dev.ended() == 0
    assert "Asia/Tokyo" in answer
    assert "Europe/Berlin" in answer


async def test_dev_keeps_its_key_for_as_long_as_it_is_valid(embedded: tuple[Path, str]) -> None:
    """S-L13: starts leave no keys behind; one that is revoked, or readable by others, is replaced."""
    folder, dsn = embedded

    async def key() -> str:
        async with started("dev", "--bind", "127.0.0.1:0", HANGO_DATA_DIR=str(folder)) as dev:
            line = await dev.line("key ")
            dev.signal(signal.SIGTERM)
            assert await dev.ended() == 0
        return line

    async with open_pool(dsn) as pool:
        first = await key()
        assert await key() == first
        await sql(pool, "update api_keys set revoked_at = now()")
        second = await key()
        assert second != first
        (folder / "dev.key").chmod(0o644)
        assert await key() not in (first, second)
        assert len(await sql(pool, "select from api_keys where revoked_at is null")) == 2


async def test_dev_on_a_socket_prints_calls_that_work_too(embedded: tuple[Path, str]) -> None:
    """Told of the socket, curl needs a plain host to say."""
    socket = embedded[0] / "http.sock"
    async with started("dev", "--bind", f"unix:{socket}", HANGO_DATA_DIR=str(embedded[0])) as dev:
        assert '"input"' in await pasted(await dev.line("curl"))
        dev.signal(signal.SIGTERM)
        assert await dev.ended() == 0
