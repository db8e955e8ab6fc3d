"""Nothing is lost and nothing runs twice, with real processes that are really killed."""

from __future__ import annotations

import signal
from datetime import timedelta
from itertools import pairwise

import pytest

from hango.domain import Run, RunState, ToolResultBlock
from hango.testing.plugin import SeededTenant, sql

from support.worker_processes import WorkerProcesses

pytestmark = pytest.mark.rule(8)

_NEVER = "1h"  # an interval that cannot be what made something happen


async def stored(world: SeededTenant, run: Run) -> list[tuple[int, int | None, str]]:
    """(seq, turn, role) of every message of the run's session."""
    messages = await world.sessions.messages(world.scope(), run.session_id, limit=200)
    return [(message.seq, message.turn, message.role) for message in messages]


ALL_TURNS = [
    (1, 0, "user"),
    (2, 1, "assistant"),
    (3, 1, "user"),
    (4, 2, "assistant"),
    (5, 2, "user"),
    (6, 3, "assistant"),
]


@pytest.mark.rule(3)
@pytest.mark.rule(5)
async def test_a_run_survives_kill_9_in_mid_tool(fleet: WorkerProcesses) -> None:
    """No finished turn is repeated, no stored answer bought again, each message is there once."""
    run = await fleet.world.run(await fleet.world.session(), "one note hold")
    async with fleet.worker() as first:
        await first.line(f"holding {run.id}")
        assert await stored(fleet.world, run) == ALL_TURNS[:4]
        first.signal(signal.SIGKILL)
        await first.ended()
    fleet.let_go()
    async with fleet.worker():
        ended = (await fleet.until([run], RunState.SUCCEEDED))[0]
    assert (ended.claim_epoch, ended.iterations, ended.resume_turn) == (2, 3, 3)
    assert await stored(fleet.world, run) == ALL_TURNS
    happened = fleet.happened()
    assert happened == {
        "provider one 1": 1,
        f"note {run.id} 1": 1,
        "provider one 2": 1,
        f"hold {run.id} 2": 2,
        "provider one 3": 1,
    }


@pytest.mark.rule(9)
async def test_a_tool_killed_in_its_middle_is_started_again_only_if_its_effects_allow(
    fleet: WorkerProcesses,
) -> None:
    """Kill -9 in mid-tool: what is unsafe happened once, and the model is told that it may have."""
    run = await fleet.world.run(await fleet.world.session(), "one send+pay+hold+send")
    async with fleet.worker() as first:
        for _ in range(4):
            await first.line(f"holding {run.id}")
        first.signal(signal.SIGKILL)
        await first.ended()
    fleet.let_go()
    async with fleet.worker():
        await fleet.until([run], RunState.SUCCEEDED)
    assert fleet.happened() == {
        "provider one 1": 1,
        f"send {run.id} 1": 2,  # two calls
        f"pay {run.id}:1:1": 2,  # one call, one key
        f"hold {run.id} 1": 2,
        "provider one 2": 1,
    }
    messages = await fleet.world.sessions.messages(fleet.world.scope(), run.session_id)
    results = [block for block in messages[2].content if isinstance(block, ToolResultBlock)]
    assert [block.is_error for block in results] == [True, False, False, True]
    assert all("may have taken effect" in block.content for block in results if block.is_error)


@pytest.mark.rule(9)
async def test_what_a_killed_process_had_recorded_is_used(fleet: WorkerProcesses) -> None:
    """Kill -9 after an unsafe call and before its turn's end: the model is told what came of it."""
    run = await fleet.world.run(await fleet.world.session(), "one post+hold")
    async with fleet.worker() as first:
        await first.line(f"holding {run.id}")
        await fleet.until_recorded()
        first.signal(signal.SIGKILL)
        await first.ended()
    fleet.let_go()
    async with fleet.worker():
        await fleet.until([run], RunState.SUCCEEDED)
    assert fleet.happened()[f"post {run.id}:1:0"] == 1
    assert fleet.happened()[f"hold {run.id} 1"] == 2
    messages = await fleet.world.sessions.messages(fleet.world.scope(), run.session_id)
    assert messages[2].content[0] == ToolResultBlock(
        "call_1_0", "posted", for_user="It is in the post."
    )


@pytest.mark.rule(5)
async def test_a_run_whose_lease_lives_is_left_alone_by_a_newcomer(fleet: WorkerProcesses) -> None:
    """A process that starts sweeps at once, and takes nothing from one that is alive."""
    held = await fleet.world.run(await fleet.world.session(), "one hold")
    async with fleet.worker(HANGO_RUN_WORKERS="1") as first:
        await first.line(f"holding {held.id}")
        other = await fleet.world.run(await fleet.world.session(), "two note")
        async with fleet.worker():
            await fleet.until([other], RunState.SUCCEEDED)
            now = await fleet.world.reload(held)
            assert (now.state, now.claim_epoch, now.reclaims) == (RunState.RUNNING, 1, 0)
            fleet.let_go()
            assert (await fleet.until([held], RunState.SUCCEEDED))[0].claim_epoch == 1


@pytest.mark.rule(1)
@pytest.mark.rule(2)
async def test_two_processes_never_run_one_session_at_once(fleet: WorkerProcesses) -> None:
    """200 runs over 20 sessions: each executes once, in its session's order, one at a time."""
    sessions = [await fleet.world.session() for _ in range(20)]
    runs = [
        await fleet.world.run(session, f"run-{number}-{session.id} note")
        for number in range(10)
        for session in sessions
    ]
    quiet = {
        "HANGO_LOG_LEVEL": "warning"
    }  # nothing reads their output: a full pipe holds up the plugin
    async with fleet.worker(**quiet), fleet.worker(**quiet):
        ended = await fleet.until(runs, RunState.SUCCEEDED)
    assert {run.claim_epoch for run in ended} == {1}
    assert len({run.last_owner_id for run in ended}) == 2
    assert set(fleet.happened().values()) == {1}
    assert len(fleet.happened()) == 3 * len(runs)
    for session in sessions:
        line = sorted(
            (run for run in ended if run.session_id == session.id), key=lambda run: run.session_seq
        )
        for one, after in pairwise(line):
            assert one.finished_at is not None
            assert after.started_at is not None
            # a statement's time is that of its beginning: see `check_run_times`
            assert one.finished_at <= after.started_at + timedelta(seconds=1)
        assert [seq for seq, _, _ in await stored(fleet.world, line[0])] == list(range(1, 41))


@pytest.mark.rule(6)
async def test_sigterm_hands_a_run_over_at_its_boundary(fleet: WorkerProcesses) -> None:
    """The turn under way is finished, the run released, and the doorbell brings a peer."""
    run = await fleet.world.run(await fleet.world.session(), "one hold note")
    slow = {
        "HANGO_RUN_POLL_INTERVAL": _NEVER,
        "HANGO_RUN_RECLAIM_INTERVAL": _NEVER,
        "HANGO_RUN_LEASE_TTL": "1m",
    }
    async with fleet.worker(**slow, HANGO_RUN_WORKERS="1") as first:
        await first.line(f"holding {run.id}")
        async with fleet.worker(**slow) as second:
            other = await fleet.world.run(await fleet.world.session(), "two note")
            await fleet.until([other], RunState.SUCCEEDED)
            first.signal(signal.SIGTERM)
            fleet.let_go()
            ended = (await fleet.until([run], RunState.SUCCEEDED))[0]
            assert await first.ended() == 0
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0
    assert (ended.claim_epoch, ended.reclaims) == (2, 0)
    assert await stored(fleet.world, run) == ALL_TURNS
    assert set(fleet.happened().values()) == {1}


@pytest.mark.rule(26)
async def test_what_is_stored_is_consistent_after_many_kills(fleet: WorkerProcesses) -> None:
    """Workers are killed one after the other while 40 runs go through; the invariants hold."""
    sessions = [await fleet.world.session() for _ in range(8)]
    runs = [
        await fleet.world.run(session, f"run-{number}-{session.id} note note note")
        for number in range(5)
        for session in sessions
    ]
    for _ in range(4):
        async with fleet.worker() as worker:
            for _ in range(10):
                await worker.line("noted")
            worker.signal(signal.SIGKILL)
            await worker.ended()
    async with fleet.worker():
        ended = await fleet.until(runs, RunState.SUCCEEDED, RunState.FAILED)
    assert {run.state for run in ended} == {RunState.SUCCEEDED}
    gaps = await sql(
        fleet.world.pool,
        "select session_id from messages group by session_id having max(seq) <> count(*)",
    )
    assert list(gaps) == []
    messages = await sql(fleet.world.pool, "select run_id, count(*) as n from messages group by run_id")
    assert {row["n"] for row in messages} == {1 + 3 * 2 + 1}
