"""Tools that misbehave, in a process as users start it: it goes on, and so do all other runs."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import httpx
import pytest
import trio
from hostile.misbehaving import GOOD, LATE, named
from hostile.raising import RAISING, SECRET
from hostile.returning import RETURNING

from hango.db.pool import Pool
from hango.domain import Block, Run, RunState, ToolResultBlock
from hango.safe_errors import MAX_MESSAGE
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql
from hango.threads import MAX_STUCK

from support.processes import Running, started
from support.processes import until as patiently
from support.workers import until

pytestmark = [pytest.mark.rule(18), pytest.mark.rule(19)]

AT_ONCE = 64  # calls of one turn


@attrs.define
class Site:
    """A process with the misbehaving tools, and the database it works on.

    Attributes:
        silent: set when the process has said its last word.
    """

    world: SeededTenant
    process: Running
    url: str
    silent: trio.Event = attrs.field(factory=trio.Event)

    async def listen(self) -> None:
        """Read what the process says, or it would wait for a reader."""
        while await self.process._next() is not None:
            pass
        self.silent.set()

    async def run(self, *names: str) -> Run:
        """Queue a run, in a session of its own, that calls tools of these *names* in one turn."""
        return await self.world.run(await self.world.session(), " ".join(names))

    async def results(self, run: Run) -> list[ToolResultBlock]:
        """Return all results of a run, in their order."""
        messages = await self.world.sessions.messages(self.world.scope(), run.session_id, limit=200)
        blocks: list[Block] = [block for message in messages for block in message.content]
        return [block for block in blocks if isinstance(block, ToolResultBlock)]

    async def lives(self) -> bool:
        """Whether the process answers."""
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=30) as client:
            return (await client.get("/healthz")).status_code == 200

    async def drained(self) -> str:
        """Tell the process to end, which it must do well; return all it said."""
        self.process.signal(signal.SIGTERM)
        await patiently(self.silent)
        assert await self.process.process.wait() == 0
        return "\n".join(self.process.lines)


@asynccontextmanager
async def site(database: str, pool: Pool, **settings: str) -> AsyncIterator[Site]:
    """Start a process that serves and executes."""
    world = await make_seeded_tenant(pool, provider="naive")
    usual = {
        "HANGO_DATABASE_URL": database,
        "HANGO_PLUGINS": "hostile.misbehaving",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "HANGO_TOOL_TIMEOUT": "10s",
    }
    async with started("serve", "--bind", "127.0.0.1:0", **{**usual, **settings}) as process:
        url = (await process.line("listening on")).split("listening on ")[1]
        await process.line("executing runs")
        async with trio.open_nursery() as nursery:
            at = Site(world, process, url)
            nursery.start_soon(at.listen)
            yield at
            nursery.cancel_scope.cancel()


def in_turns(names: Sequence[str]) -> list[Sequence[str]]:
    """Cut *names* into what one turn may hold."""
    return [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]


async def test_whatever_a_tool_raises_or_returns_its_run_succeeds(database: str, pool: Pool) -> None:
    """C09, C10, C12: each alone in a run, and all in one turn, sync and async; nobody else notices."""
    bad, good = named(*RAISING, *RETURNING), named(*GOOD)
    async with site(database, pool) as at:
        alone = {name: await at.run(name) for name in [*bad, *good]}
        crowds = {tuple(some): await at.run(*some) for some in in_turns([*bad, *good])}
        ended = await until(at.world, [*alone.values(), *crowds.values()])
        assert {run.state for run in ended} == {RunState.SUCCEEDED}
        assert {run.iterations for run in ended} == {2}
        results = {name: (await at.results(run))[0] for name, run in alone.items()}
        for names, run in crowds.items():
            together = [block.content for block in await at.results(run)]
            # the time that one of them tells in its error is none
            assert together == [results[name].content for name in names]
        assert await at.lives()
        said = await at.drained()
    assert [name for name, result in results.items() if result.is_error] == bad
    assert all(0 < len(results[name].content.encode()) <= MAX_MESSAGE for name in bad)
    assert {name: results[name].content for name in good} == {
        "give_strange_text": "strange",
        "async_give_strange_text": "strange",
        "give_nothing": "(no output)",
        "async_give_nothing": "(no output)",
        "fine": "fine",
        "async_fine": "fine",
    }
    everything = "\n".join([said, *(result.content for result in results.values())])
    assert SECRET not in everything
    assert "Traceback" not in everything


async def test_what_does_not_end_by_itself_is_ended(database: str, pool: Pool) -> None:
    """C07, C08: swallowing, replacing or ignoring the end of its time, a call is just too late."""
    late = named(*LATE)
    async with site(database, pool, HANGO_TOOL_TIMEOUT="200ms") as at:
        runs = [await at.run(name) for name in late] + [await at.run(*late, "fine")]
        ended = await until(at.world, runs)
        assert {run.state for run in ended} == {RunState.SUCCEEDED}
        for run, names in zip(ended, [*([name] for name in late), late], strict=True):
            told = [result.content for result in await at.results(run)]
            assert told[: len(names)] == [
                f"{name} took longer than 0.2 s and was stopped" for name in names
            ]
        assert await at.lives()
        await at.drained()


async def test_a_cancelled_run_ends_whatever_its_tools_make_of_it(database: str, pool: Pool) -> None:
    """C07: the run is cancelled, with all of them in one turn and each alone; the process goes on."""
    late = named(*LATE)
    async with site(database, pool, HANGO_TOOL_TIMEOUT="1h", HANGO_RUN_DEADLINE="1h") as at:
        runs = [await at.run(*names) for names in [late, *([name] for name in late)]]
        await all_acting(at, runs)
        for run in runs:
            await at.world.runs.cancel(at.world.scope(), run.id)
        assert {run.state for run in await until(at.world, runs)} == {RunState.CANCELLED}
        after = await until(at.world, [await at.run("fine", "async_fine")])
        assert after[0].state is RunState.SUCCEEDED
        await at.drained()


async def test_a_drain_ends_although_tools_do_not(database: str, pool: Pool) -> None:
    """C07, C08, D16: the runs are given back, and the process exits with 0 over all of them."""
    late = named(*LATE)
    settings = {"HANGO_TOOL_TIMEOUT": "1h", "HANGO_RUN_DEADLINE": "1h", "HANGO_DRAIN_TIMEOUT": "0s"}
    async with site(database, pool, **settings) as at:
        runs = [await at.run(*names) for names in [late, *([name] for name in late)]]
        await all_acting(at, runs)
        await at.drained()
        assert {(await at.world.reload(run)).state for run in runs} == {RunState.QUEUED}


async def all_acting(at: Site, runs: Sequence[Run]) -> None:
    """Wait until the answer that asks for the tools is stored, for each of *runs*."""
    with trio.fail_after(30):
        for run in runs:
            while len(await at.world.sessions.messages(at.world.scope(), run.session_id)) < 2:
                await trio.lowlevel.checkpoint()


async def test_threads_that_never_return_are_counted_and_bounded(database: str, pool: Pool) -> None:
    """C08: beyond the bound a call waits its time and says so; other tools, runs and the end go on."""
    async with site(database, pool, HANGO_TOOL_TIMEOUT="100ms") as at:
        greedy = await at.run(*["never_return"] * AT_ONCE)
        ended = (await until(at.world, [greedy]))[0]
        told = [result.content for result in await at.results(greedy)]
        late = sum("took longer" in content for content in told)
        refused = sum("earlier calls of it have not returned" in content for content in told)
        assert ended.state is RunState.SUCCEEDED
        assert late + refused == AT_ONCE
        assert (
            MAX_STUCK <= late < MAX_STUCK + 8
        )  # the bound, and what was under way when it was reached
        others = await until(at.world, [await at.run("fine"), await at.run("async_fine")])
        assert {run.state for run in others} == {RunState.SUCCEEDED}
        assert [(await at.results(run))[0].content for run in others] == ["fine", "fine"]
        assert await at.lives()
        await at.drained()


async def test_a_lease_is_kept_while_threads_wait_and_compute(database: str, pool: Pool) -> None:
    """C08: longer than a lease nothing is lost, others are served, and a cancel is heard."""
    patient = {"HANGO_TOOL_TIMEOUT": "1h", "HANGO_RUN_DEADLINE": "1h"}
    async with site(database, pool, HANGO_RUN_LEASE_TTL="6s", **patient) as at:
        busy = await at.run("never_return", "spin")
        await all_acting(at, [busy])
        with trio.fail_after(90):
            while not (await sql(pool, _A_LEASE_ON, busy.id))[0]["on"]:
                assert await at.lives()
        others = await until(at.world, [await at.run("fine", "async_fine")])
        now = await at.world.reload(busy)
        await at.world.runs.cancel(at.world.scope(), busy.id)
        ended = await until(at.world, [busy])
        await at.drained()
    assert [run.state for run in (*others, now, *ended)] == ["succeeded", "running", "cancelled"]
    assert (ended[0].claim_epoch, ended[0].reclaims) == (1, 0)


_A_LEASE_ON = """
select now() > started_at + interval '7 seconds' and lease_expires_at > now() as "on"
  from runs
 where id = $1
"""
