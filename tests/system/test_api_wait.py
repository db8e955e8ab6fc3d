"""`Prefer: wait=N`: an answer when the run has ended, for little more than the waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import httpx
import pytest
import trio

from hango.db.pool import Pool, open_pool
from hango.domain import Role, Run
from hango.providers import DemoProvider
from hango.testing.plugin import sql
from hango.web import run_waiter

from support.api import Api, is_problem, serving
from support.workers import cut_connections, database_away, started_worker

NEVER = 1e6  # seconds; what cannot be the reason that something happens
_LISTENING = """
select count(*) as n from pg_stat_activity
 where datname = current_database() and query ilike 'listen %'
"""


async def queued(api: Api) -> Run:
    """Have a run of acme's member that nobody executes."""
    return await api.acme.run(await api.session(), role=Role.MEMBER)


async def end(api: Api, run: Run) -> None:
    """End a run."""
    await api.acme.runs.cancel(api.acme.scope(), run.id)


async def listening(api: Api) -> int:
    """Return how many connections hear the doorbell."""
    return int((await sql(api.pool, _LISTENING))[0]["n"])


@attrs.define
class Wait:
    """A request that waits; `answer` is there when `answered` is set."""

    run: Run
    answer: httpx.Response | None = None
    answered: trio.Event = attrs.field(factory=trio.Event)

    async def ask(self, api: Api, seconds: int) -> None:
        """Wait for the run as acme's member."""
        async with api.as_role(Role.MEMBER) as client:
            client.timeout = httpx.Timeout(90)
            headers = {"Prefer": f"wait={seconds}"}
            self.answer = await client.get(f"/v1/runs/{self.run.id}", headers=headers)
        self.answered.set()

    async def state(self) -> str:
        """Return the state that was answered, once it is."""
        with trio.fail_after(40):
            await self.answered.wait()
        assert self.answer is not None
        return str(self.answer.json()["state"])


async def until(api: Api, *, waiting: int, hearing: bool | None = None) -> None:
    """Return when so many wait, and the server does or does not hear the doorbell."""
    ear = api.server.run_waiter
    with trio.fail_after(20):
        while ear.waiting != waiting or (hearing is not None and ear._listening is not hearing):
            await trio.lowlevel.checkpoint()  # nothing tells of it
        while api.pool.in_flight:  # until each has looked
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def waits(api: Api, *runs: Run, seconds: int = 60) -> AsyncIterator[list[Wait]]:
    """Have a client wait for each run, and the doorbell heard."""
    waits = [Wait(run) for run in runs]
    async with trio.open_nursery() as nursery:
        for wait in waits:
            nursery.start_soon(wait.ask, api, seconds)
        await until(api, waiting=len(runs), hearing=True)
        yield waits


async def test_the_answer_comes_with_the_end(api: Api) -> None:
    """Who waits is answered when the run has ended, with what it is then."""
    run = await queued(api)
    async with waits(api, run) as (wait,):
        await end(api, run)
        assert await wait.state() == "cancelled"
    assert wait.answer is not None
    assert wait.answer.status_code == 200
    assert wait.answer.headers["preference-applied"] == "wait=60"
    assert api.server.run_waiter.waiting == 0


async def test_a_run_is_asked_for_and_waited_for(api: Api) -> None:
    """From the prompt to the end of the run it takes two requests."""
    session = await api.session()
    async with started_worker(api.acme, DemoProvider()), api.as_role(Role.MEMBER) as client:
        accepted = await client.post(f"/v1/sessions/{session.id}/runs", json={"input": "hello"})
        run = await client.get(accepted.headers["location"], headers={"Prefer": "wait=30"})
    assert run.json()["state"] == "succeeded"


async def test_a_run_that_has_ended_is_answered_at_once(api: Api) -> None:
    """There is nothing to wait for, and nothing to listen to."""
    run = await queued(api)
    await end(api, run)
    wait = Wait(run)
    await wait.ask(api, 60)
    assert await wait.state() == "cancelled"
    assert wait.answer is not None
    assert wait.answer.headers["preference-applied"] == "wait=60"
    assert await listening(api) == 0


async def test_when_the_time_is_over_the_run_is_answered_as_it_is(api: Api) -> None:
    """N seconds are the most one waits; then the run has not ended, and that is the answer."""
    wait = Wait(await queued(api))
    await wait.ask(api, 1)
    assert await wait.state() == "queued"
    assert api.server.run_waiter.waiting == 0


@pytest.mark.parametrize("value", ["wait=no", "wait", "wait=-1", "respond-async", "", "wait=0"])
async def test_a_wish_that_means_nothing_is_ignored(api: Api, value: str) -> None:
    """A preference that is none is answered as if it were not there (RFC 7240 §2)."""
    run = await queued(api)
    async with api.as_role(Role.MEMBER) as client:
        answer = await client.get(f"/v1/runs/{run.id}", headers={"Prefer": value})
    assert answer.json()["state"] == "queued"
    assert answer.headers.get("preference-applied") == ("wait=0" if value == "wait=0" else None)
    assert await listening(api) == 0


async def test_who_may_not_see_a_run_does_not_wait_for_it(api: Api) -> None:
    """A stranger gets the 404 of an unknown run at once (F02)."""
    run = await queued(api)
    async with api.as_role(Role.OWNER, api.globex) as stranger:
        answer = await stranger.get(f"/v1/runs/{run.id}", headers={"Prefer": "wait=60"})
        plain = await stranger.get(f"/v1/runs/{run.id}")
    assert is_problem(answer, 404, "not_found")
    assert answer.content == plain.content
    assert await listening(api) == 0


@pytest.mark.rule(26)
async def test_those_who_wait_share_one_connection(api: Api) -> None:
    """Thirty who wait hold one connection between them, none of the pool's; a ring costs one look."""
    runs = [await queued(api) for _ in range(30)]
    async with waits(api, *runs) as all_of_them:
        assert api.pool.idle == api.pool.size
        assert await listening(api) == 1
        before = api.pool.statements
        await end(api, runs[7])
        assert await all_of_them[7].state() == "cancelled"
        assert api.pool.statements == before + 2  # the end, and one look at it
        assert sum(wait.answered.is_set() for wait in all_of_them) == 1
        for run in runs:
            await end(api, run)
    assert {await wait.state() for wait in all_of_them} == {"cancelled"}


async def test_two_who_wait_for_one_run_are_both_told(api: Api) -> None:
    """However many wait for a run, its end is the end for all of them."""
    run = await queued(api)
    async with waits(api, run, run, run) as all_of_them:
        await end(api, run)
        assert [await wait.state() for wait in all_of_them] == ["cancelled"] * 3


async def test_a_run_that_goes_on_is_waited_for(api: Api) -> None:
    """A ring that is not the end (a claim given back, a cancel asked for) ends no wait."""
    run = await queued(api)
    claim = await api.worker().claim_next(run.session_id)
    assert claim is not None
    async with waits(api, run) as (wait,):
        await end(api, run)  # asks its owner
        await until(api, waiting=1, hearing=True)
        assert not wait.answered.is_set()
        await sql(api.pool, "update runs set lease_expires_at = now() - interval '1 s'")
        assert await api.worker().sweep() == 1
        assert await wait.state() == "cancelled"


async def test_a_drain_ends_every_wait(api: Api) -> None:
    """When the server drains, who waits is answered at once, and nobody holds it up (D16)."""
    runs = [await queued(api) for _ in range(2)]
    async with waits(api, *runs) as all_of_them:
        api.server.draining.set()
        assert {await wait.state() for wait in all_of_them} == {"queued"}
        late = Wait(runs[0])
        await late.ask(api, 60)
        assert await late.state() == "queued"
        api.server.stop.set()
        with trio.fail_after(20):
            await api.server.stopped.wait()


async def test_a_dead_line_is_opened_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A doorbell whose connection was cut is heard again, without anybody having to look (D12)."""
    monkeypatch.setattr(run_waiter, "POLL_INTERVAL", NEVER)
    run = await queued(api)
    async with waits(api, run) as (wait,):
        for _ in range(2):
            await cut_connections(api.pool)
            await until(api, waiting=1, hearing=False)
            await until(api, waiting=1, hearing=True)
        await end(api, run)
        assert await wait.state() == "cancelled"
        assert await listening(api) == 1


async def test_an_end_that_nobody_heard_is_found(
    api: Api, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ended while the database was away is seen when the doorbell is heard again (D12)."""
    monkeypatch.setattr(run_waiter, "POLL_INTERVAL", NEVER)
    run = await queued(api)
    async with waits(api, run) as (wait,), open_pool(database) as elsewhere:
        async with database_away(api.pool):
            await until(api, waiting=1, hearing=False)
            await end(attrs.evolve(api, acme=attrs.evolve(api.acme, pool=elsewhere)), run)
        assert await wait.state() == "cancelled"


async def test_without_a_doorbell_those_who_wait_look(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no ring can be heard at all, the end is found by looking."""
    monkeypatch.setattr(run_waiter, "POLL_INTERVAL", 0.1)
    nowhere = "postgresql://nobody@/nothing?host=/nonexistent"
    async with open_pool(nowhere) as deaf, serving(pool, doorbell=deaf) as api:
        run = await queued(api)
        wait = Wait(run)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait.ask, api, 60)
            await until(api, waiting=1, hearing=False)
            await end(api, run)
            assert await wait.state() == "cancelled"


async def test_when_the_doorbell_falls_silent_those_who_wait_look(
    pool: Pool, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who relies on rings begins to look when the line dies and cannot be opened again (D12)."""
    monkeypatch.setattr(run_waiter, "POLL_INTERVAL", 0.1)
    async with open_pool(database) as doorbell, serving(pool, doorbell=doorbell) as api:
        run = await queued(api)
        async with waits(api, run) as (wait,), database_away(doorbell):
            await until(api, waiting=1, hearing=False)
            await end(api, run)
            assert await wait.state() == "cancelled"


async def test_a_database_that_stays_away_is_told_at_the_end(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits is not bothered with a database that is away, unless it still is when time is over."""
    monkeypatch.setattr(run_waiter, "POLL_INTERVAL", 0.1)
    run = await queued(api)
    async with waits(api, run, seconds=2) as (wait,), database_away(api.pool):
        with trio.fail_after(20):
            await wait.answered.wait()
    assert wait.answer is not None
    assert is_problem(wait.answer, 503, "unavailable")


async def test_a_client_that_leaves_waits_no_longer(api: Api) -> None:
    """A connection that was closed is not waited for (F10)."""
    run = await queued(api)
    stream = await api.connect()
    await stream.send_all(api.head("GET", f"/v1/runs/{run.id}", "Prefer: wait=60"))
    await until(api, waiting=1, hearing=True)
    await stream.aclose()
    await until(api, waiting=0)


async def test_a_line_that_nobody_needs_is_hung_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A while after the last one has waited the doorbell's connection is closed; then opened anew."""
    monkeypatch.setattr(run_waiter, "KEEP_OPEN", 0.05)
    for _ in range(2):
        run = await queued(api)
        async with waits(api, run) as (wait,):
            await end(api, run)
            assert await wait.state() == "cancelled"
        await until(api, waiting=0, hearing=False)
        with trio.fail_after(20):
            while await listening(api):
                await trio.lowlevel.checkpoint()
