"""Runs as users see them: the exact cap, visibility, cancel, and the audit beside each change."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest
import trio

from hango.db.pool import Pool, open_pool
from hango.domain import Role, Run, RunState, Session, TextBlock, new_id
from hango.errors import NotFound, SessionBusy, SessionQueueFull, TenantQueueFull
from hango.store.bounds import StoreBounds
from hango.store.runs import Created, Runs
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql

from support.locks import row_held, uncommitted, until_waiting


async def count_runs(world: SeededTenant) -> int:
    """All runs there are."""
    return int((await sql(world.pool, "select count(*) as n from runs"))[0]["n"])


async def test_a_new_run_is_queued_with_a_trace_and_an_audit_row(world: SeededTenant) -> None:
    """The run, its audit row and the doorbell are one transaction; both rows carry the trace id."""
    session = await world.session()
    async with world.pool.listen() as rings:
        run = await world.run(session)
        ring = await anext(rings)
    assert ring is not None
    assert (ring.session_id, ring.run_id) == (session.id, run.id)
    assert run.state is RunState.QUEUED
    assert re.fullmatch("[0-9a-f]{32}", run.trace_id)
    audit = await sql(world.pool, "select * from audit_events where action = 'run.create'")
    assert [(row["target_kind"], row["target_id"], row["trace_id"]) for row in audit] == [
        ("run", run.id, run.trace_id)
    ]
    for detail in ("agent_id", "session_id", "lane"):
        assert detail in audit[0]["detail"]


async def test_runs_are_numbered_in_their_session(world: SeededTenant) -> None:
    """Each session counts its own line from 1."""
    one, two = await world.session(), await world.session()
    numbers = [(await world.run(session)).session_seq for session in (one, one, two, one)]
    assert numbers == [1, 2, 1, 3]


@pytest.mark.rule(11)
async def test_the_cap_is_exact_under_concurrency(database: str) -> None:
    """Forty posts wait at once for the session; with a cap of three, three get in."""
    async with open_pool(database, size=50) as pool:
        await cap_of_three(await make_seeded_tenant(pool))


async def cap_of_three(world: SeededTenant) -> None:
    """Let forty posts wait for one session, then let them go."""
    session = await world.session()
    outcomes: list[type] = []

    async def post() -> None:
        try:
            await world.run(session, max_live=3)
            outcomes.append(Run)
        except SessionQueueFull:
            outcomes.append(SessionQueueFull)

    async with trio.open_nursery() as nursery, row_held(world.pool, "sessions", session.id):
        for _ in range(40):
            nursery.start_soon(post)
        await until_waiting(world.pool, 40)
    assert outcomes.count(Run) == 3
    assert outcomes.count(SessionQueueFull) == 37
    assert await count_runs(world) == 3


async def test_requests_of_one_key_that_wait_together_get_one_run(world: SeededTenant) -> None:
    """The one that comes first creates it, and fills the session; the others find it all the same."""
    session, runs = await world.session(), Runs(world.pool)
    created: list[Created] = []

    async def post() -> None:
        once = runs.create_once(world.scope(), session.id, (TextBlock("hi"),), key="k", max_live=1)
        created.append(await once)

    async with trio.open_nursery() as nursery, row_held(world.pool, "sessions", session.id):
        for _ in range(5):
            nursery.start_soon(post)
        await until_waiting(world.pool, 5)
    assert len({one.run.id for one in created}) == 1
    assert sorted(one.replayed for one in created) == [False, True, True, True, True]
    assert await count_runs(world) == 1


@pytest.mark.rule(6)
async def test_the_live_runs_of_a_tenant_are_bounded_over_its_sessions(pool: Pool) -> None:
    """S-M5: beyond it none is taken in any session; ended runs and other tenants do not count."""
    one, two = await make_seeded_tenant(pool, "one"), await make_seeded_tenant(pool, "two")
    runs, said = Runs(pool, StoreBounds(tenant_runs=3)), (TextBlock("hello"),)
    sessions = [await one.session() for _ in range(3)]
    for session in sessions[:2]:
        first = await runs.create(one.scope(), session.id, said, max_live=20)
    await runs.create_once(one.scope(), sessions[0].id, said, key="a", max_live=20)
    for session in sessions:
        with pytest.raises(TenantQueueFull, match="3 runs"):
            await runs.create(one.scope(), session.id, said, max_live=20)
    with pytest.raises(SessionQueueFull):
        await runs.create(one.scope(), sessions[0].id, said, max_live=2)
    replayed = await runs.create_once(one.scope(), sessions[0].id, said, key="a", max_live=20)
    assert replayed.replayed
    await runs.create(two.scope(), (await two.session()).id, said, max_live=20)
    await one.runs.cancel(one.scope(), first.id)
    await runs.create(one.scope(), sessions[2].id, said, max_live=20)


async def may(world: SeededTenant, role: Role, session: Session, run: Run) -> set[str]:
    """What the user of that role can do with a session and its run."""
    scope, can = world.scope(role), set()
    attempts: dict[str, Callable[[], Awaitable[object]]] = {
        "read session": lambda: world.sessions.get(scope, session.id),
        "read messages": lambda: world.sessions.messages(scope, session.id),
        "read run": lambda: world.runs.get(scope, run.id),
        "cancel run": lambda: world.runs.cancel(scope, run.id),
        "create run": lambda: world.run(session, role=role),
    }
    for name, attempt in attempts.items():
        try:
            await attempt()
            can.add(name)
        except NotFound:
            pass
    if run.id in {r.id for r in await world.runs.list(scope)}:
        can.add("list run")
    return can


@pytest.mark.rule(13)
@pytest.mark.parametrize("creator", Role)
@pytest.mark.parametrize("viewer", Role)
async def test_members_act_on_their_own_and_the_others_on_all(
    world: SeededTenant, creator: Role, viewer: Role
) -> None:
    """A member sees what they created; what they may not see does not exist for them."""
    session = await world.session(creator)
    run = await world.run(session, role=creator)
    everything = {
        "read session", "read messages", "read run", "cancel run", "create run", "list run",
    }  # fmt: skip
    allowed = viewer is creator or viewer.administers
    assert await may(world, viewer, session, run) == (everything if allowed else set())


@pytest.mark.rule(13)
@pytest.mark.parametrize("viewer", Role)
async def test_nothing_is_seen_across_tenants(pool: Pool, viewer: Role) -> None:
    """Not even by an owner, and nothing is written by the attempt."""
    ours, theirs = await make_seeded_tenant(pool, "ours"), await make_seeded_tenant(pool, "theirs")
    session = await theirs.session()
    run = await theirs.run(session)
    assert await may(ours, viewer, session, run) == set()
    assert await count_runs(ours) == 1
    assert (await theirs.reload(run)).cancel_requested_at is None
    with pytest.raises(NotFound):
        await ours.sessions.create(ours.scope(viewer), theirs.agent.id)


@pytest.mark.rule(11)
async def test_cancel_of_a_queued_run_is_terminal_at_once(world: SeededTenant) -> None:
    """Nobody will claim it, and those behind it move up."""
    session = await world.session()
    first, second = await world.run(session), await world.run(session)
    cancelled = await world.runs.cancel(world.scope(), first.id)
    assert cancelled.state is RunState.CANCELLED
    assert cancelled.finished_at is not None
    claim = await world.queue().claim_next(session.id)
    assert claim is not None
    assert claim.run.id == second.id


@pytest.mark.rule(11)
async def test_cancel_of_a_running_run_is_a_request_made_once(world: SeededTenant) -> None:
    """Twice is as good as once, and is audited once."""
    session = await world.session()
    run = await world.run(session)
    await world.queue().claim_next(session.id)
    first = await world.runs.cancel(world.scope(), run.id)
    second = await world.runs.cancel(world.scope(), run.id)
    assert first.state is RunState.RUNNING
    assert first.cancel_requested_at == second.cancel_requested_at is not None
    audit = await sql(world.pool, "select count(*) as n from audit_events where action = 'run.cancel'")
    assert audit[0]["n"] == 1


@pytest.mark.rule(11)
@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
async def test_cancel_of_an_ended_run_changes_nothing(world: SeededTenant, end: str) -> None:
    """It stays as it ended."""
    session = await world.session()
    run = await world.run(session)
    await sql(
        world.pool,
        "update runs set state = $2, finished_at = now(),"
        " error_code = case when $2 = 'failed' then 'internal' end,"
        " error = case when $2 = 'failed' then 'a fault' end where id = $1",
        run.id,
        end,
    )
    ended = await world.reload(run)
    assert await world.runs.cancel(world.scope(), run.id) == ended


@pytest.mark.rule(11)
async def test_cancel_and_claim_have_one_winner(world: SeededTenant) -> None:
    """A cancel that waits for a claim finds a running run; it never makes a queued one linger."""
    session = await world.session()
    run = await world.run(session)
    async with trio.open_nursery() as nursery, row_held(world.pool, "runs", run.id):
        nursery.start_soon(world.queue().claim_next, session.id)
        nursery.start_soon(world.runs.cancel, world.scope(), run.id)
        await until_waiting(world.pool, 2)
    now = await world.reload(run)
    assert now.cancel_requested_at is not None
    assert now.state in {RunState.RUNNING, RunState.CANCELLED}


async def test_messages_cannot_be_added_under_a_live_run(world: SeededTenant) -> None:
    """Before and after they can; they have neither run nor turn."""
    session, scope = await world.session(), world.scope()
    said = (TextBlock("by hand"),)
    added = await world.sessions.add_message(scope, session.id, "user", said)
    assert (added.seq, added.run_id, added.turn) == (1, None, None)
    run = await world.run(session)
    with pytest.raises(SessionBusy):
        await world.sessions.add_message(scope, session.id, "user", said)
    await world.runs.cancel(scope, run.id)
    assert (await world.sessions.add_message(scope, session.id, "user", said)).seq == 2


async def test_a_message_waits_for_a_run_that_is_being_created(world: SeededTenant) -> None:
    """It is counted once it is there, though the message was on its way before."""
    session, scope = await world.session(), world.scope()
    creating = """
        with numbered as (
            update sessions set next_run_seq = 2 returning *
        )
        insert into runs (id, tenant_id, session_id, session_created_by, agent_id, created_by,
                          session_seq, input, trace_id)
        select id, tenant_id, id, created_by, agent_id, created_by, 1, '[]', repeat('1', 32)
          from numbered
    """
    refused: list[SessionBusy] = []

    async def add() -> None:
        with pytest.raises(SessionBusy) as raised:
            await world.sessions.add_message(scope, session.id, "user", (TextBlock("by hand"),))
        refused.append(raised.value)

    async with trio.open_nursery() as nursery, uncommitted(world.pool, creating):
        nursery.start_soon(add)
        await until_waiting(world.pool, 1)
    assert refused


async def test_lists_page_without_gap_or_repeat(world: SeededTenant) -> None:
    """Newest first, each exactly once, whatever the page size."""
    session = await world.session()
    made = [(await world.run(session)).id for _ in range(7)]
    seen, before = [], None
    while page := await world.runs.list(world.scope(), session_id=session.id, before=before, limit=3):
        seen += [run.id for run in page]
        before = page[-1].id
    assert seen == made[::-1]
    assert await world.runs.list(world.scope(), state=RunState.RUNNING) == []
    with pytest.raises(NotFound):
        await world.runs.get(world.scope(), new_id())
