"""How one execution ends: well, badly, cut short, or without authority; and what an actor remembers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from hango.actors import ExecutionBuilder, WorkerSettings
from hango.agent import AgentLoop
from hango.db.pool import Pool, open_pool
from hango.domain import (
    ErrorCode,
    Limits,
    Message,
    OutcomeStatus,
    Role,
    Run,
    RunOutcome,
    RunState,
    TextBlock,
    Usage,
    UserStatus,
)
from hango.errors import StateConflict, StoreUnavailable
from hango.store.claims import Claim
from hango.telemetry.logs import TextLines
from hango.testing import FakeProvider, call, hanging, text
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql
from hango.testing.scripts import USAGE
from hango.testing.workers import registry_of

from support.session_bench import builder_for, make_session_bench
from support.workers import TICKING, BlockingTool, HandClock, mock_now, started_worker, until


@pytest.fixture
def clock() -> MockClock:
    """Have a clock that stands still until it is turned."""
    return MockClock()


# --- ends -----------------------------------------------------------------------------------


async def test_a_run_that_ends_well_is_settled_and_its_slot_freed(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """One claim, one execution, one end; the claim is no longer kept."""
    on = await make_session_bench(world, nursery, builder_for(FakeProvider([text("hi")])))
    run = await on.execute()
    assert (run.state, on.settled, on.leases.renewable()) == (RunState.SUCCEEDED, 1, [])
    assert [message.content for message in await on.stored()] == [
        (TextBlock("hello"),),
        (TextBlock("hi"),),
    ]


@pytest.mark.rule(27)
@pytest.mark.parametrize("error", [RuntimeError("quoted prompt"), SystemExit("quoted prompt")])
async def test_what_a_provider_raises_fails_its_run_and_is_logged_without_content(
    world: SeededTenant,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    """R-F1: nobody claims it again; the row says what it was, the log has type and frames."""

    def broken(_: object) -> TextBlock:
        raise error

    on = await make_session_bench(world, nursery, builder_for(FakeProvider(broken), BlockingTool()))
    with caplog.at_level(logging.INFO):
        run = await on.execute()
    kind = type(error).__name__
    assert run.state is RunState.FAILED
    assert run.error
    assert run.error.code is ErrorCode.PROVIDER_ERROR
    assert run.error.message == f"unexpected_error: the provider raised {kind}: quoted prompt"
    assert run.stopped_by == "provider_error"
    lines = "\n".join(TextLines().format(record) for record in caplog.records)
    assert kind in lines
    assert "test_session_actor.broken" in lines
    assert "quoted" not in lines
    assert not on.address.stopped.is_set()
    assert [message.role for message in await on.stored()] == ["user"], "its input is kept"


async def test_an_unexpected_error_fails_the_run_as_internal_and_tells_no_content(
    world: SeededTenant, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """The row names the type, the log has the frames; the message, which may quote, is nowhere."""

    async def prepare(_: Claim, __: Sequence[Message]) -> RunOutcome:
        raise RuntimeError("quoted prompt")

    on = await make_session_bench(world, nursery, prepare)
    with caplog.at_level(logging.INFO):
        run = await on.execute()
    assert run.state is RunState.FAILED
    assert run.error
    assert run.error.code is ErrorCode.INTERNAL
    assert "RuntimeError" in run.error.message
    assert "quoted" not in run.error.message
    assert run.stopped_by == "internal"
    lines = "\n".join(TextLines().format(record) for record in caplog.records)
    assert "RuntimeError" in lines
    assert "test_session_actor.py" in lines
    assert "quoted" not in lines
    assert not on.address.stopped.is_set()


@pytest.mark.parametrize("error", [ValueError("bug"), ExceptionGroup("", [ValueError("bug")])])
async def test_an_error_is_the_same_alone_and_in_a_group(
    world: SeededTenant, nursery: trio.Nursery, error: Exception
) -> None:
    """D19: what a nursery wraps is judged by its leaves."""

    async def prepare(_: Claim, __: Sequence[Message]) -> RunOutcome:
        raise error

    run = await (await make_session_bench(world, nursery, prepare)).execute()
    assert run.error
    assert run.error.code is ErrorCode.INTERNAL


@pytest.mark.rule(3)
@pytest.mark.parametrize(
    "error",
    [
        StateConflict("lost the race"),
        StoreUnavailable("no database"),
        ExceptionGroup("", [ExceptionGroup("", [StateConflict("lost"), ValueError("bug")])]),
    ],
)
async def test_an_error_of_the_store_never_fails_a_run(
    world: SeededTenant, nursery: trio.Nursery, error: Exception
) -> None:
    """D19: nothing is written, alone or in a group: the lease lapses and the run is driven again."""

    async def prepare(_: Claim, __: Sequence[Message]) -> RunOutcome:
        raise error

    on = await make_session_bench(world, nursery, prepare)
    run = await on.execute()
    assert run.state is RunState.RUNNING
    assert (on.settled, on.leases.renewable()) == (1, []), "its lease must not be renewed"


async def test_an_end_that_cannot_be_stored_fails_the_run_instead_of_driving_it_for_ever(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """What the database refuses once it would refuse every time."""

    async def prepare(_: Claim, __: Sequence[Message]) -> RunOutcome:
        return RunOutcome(OutcomeStatus.DONE, iterations=10**20, usage=Usage())

    run = await (await make_session_bench(world, nursery, prepare)).execute()
    assert run.state is RunState.FAILED
    assert run.error
    assert run.error.code is ErrorCode.INTERNAL


@pytest.mark.rule(10)
async def test_a_run_whose_loop_cannot_even_say_how_it_failed_keeps_its_finished_turns(
    world: SeededTenant, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug that failed it may strike again when it is asked what arrived: count and usage stand."""

    def broken(*_: object) -> RunOutcome:
        raise RuntimeError("the same bug again")

    monkeypatch.setattr(AgentLoop, "failed", broken)
    gate = BlockingTool()
    gate.open.set()
    on = await make_session_bench(world, nursery, builder_for(FakeProvider([call("hold")]), gate))
    run = await on.execute()
    assert run.error
    assert run.error.code is ErrorCode.INTERNAL
    assert (run.state, run.iterations, run.resume_turn) == (RunState.FAILED, 1, 1)
    assert run.usage == USAGE


@pytest.mark.rule(10)
async def test_the_run_deadline_fails_the_run_and_keeps_what_had_arrived(
    database: str, clock: MockClock
) -> None:
    """Its own outcome, not that of a lost lease: the agent's limit goes before the process's."""
    async with open_pool(database, now=mock_now) as pool:
        world = await make_seeded_tenant(pool, limits=Limits(run_deadline=60.0))
        time, provider = HandClock(clock, pool), FakeProvider([hanging(text("half an"))])
        async with started_worker(world, provider, settings=TICKING):
            run = await world.run(one := await world.session())
            await provider.wait_for_calls(1)
            await time.turn(59)
            assert provider.closed == 0
            await time.turn(2)
            (done,) = await until(world, [run])
        assert done.error
        assert done.error.code is ErrorCode.DEADLINE_EXCEEDED
        assert done.stopped_by == "deadline_exceeded"
        messages = await world.sessions.messages(world.scope(), one.id)
        assert [(m.role, m.partial) for m in messages] == [("user", False), ("assistant", True)]


# --- rights and agents, read at each claim --------------------------------------------------


@pytest.mark.rule(12)
async def test_a_creator_who_was_disabled_meanwhile_runs_nothing(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """Rights are today's: queued while active, claimed when no longer."""
    provider = FakeProvider([text("never")])
    on = await make_session_bench(world, nursery, builder_for(provider))
    claim = await on.claim()
    await sql(world.pool, "update users set status = $1", UserStatus.DISABLED)
    await on.tell(claim).wait()
    await expect_refusal(world, claim.run, ErrorCode.CREATOR_INACTIVE, provider)


@pytest.mark.rule(12)
async def test_a_creator_whose_rights_no_longer_reach_the_session_runs_nothing(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """An owner made a member acts on their own sessions only, not on somebody else's."""
    provider = FakeProvider([text("never")])
    on = await make_session_bench(world, nursery, builder_for(provider))
    on.session = await world.session(Role.MEMBER)
    claim = await on.claim()
    await sql(world.pool, "update users set role = 'member'")
    await on.tell(claim).wait()
    await expect_refusal(world, claim.run, ErrorCode.CREATOR_FORBIDDEN, provider)


@pytest.mark.rule(12)
@pytest.mark.parametrize("role", list(Role))
async def test_whoever_made_the_session_may_run_in_it_whatever_their_role(
    world: SeededTenant, nursery: trio.Nursery, role: Role
) -> None:
    """Members too, in what is theirs."""
    on = await make_session_bench(world, nursery, builder_for(FakeProvider([text("hi")])))
    on.session = await world.session(role)
    run = await world.run(on.session, role=role)
    claim = await world.queue().claim_next(on.session.id)
    assert claim
    await on.tell(claim).wait()
    assert (await world.reload(run)).state is RunState.SUCCEEDED


@pytest.mark.rule(12)
@pytest.mark.parametrize(
    "change",
    [
        "update agents set provider = 'gone'",
        "update agents set guardrails = '{no_shell}'",
        """update agents set completion = '{"verify": "all_todos_done", "max_attempts": 3}'""",
        "update agents set tools = '{no_such_tool}'",
    ],
)
@pytest.mark.parametrize("grace", [600.0, 0.0])
async def test_what_is_not_registered_here_is_waited_for_and_never_left_out(
    world: SeededTenant, nursery: trio.Nursery, change: str, grace: float
) -> None:
    """R-F7, W-M7: another process may have it; after the grace the run fails."""
    provider = FakeProvider([text("never")])
    settings = WorkerSettings(missing_grace=grace)
    build = ExecutionBuilder({"fake": provider}, registry_of(), settings).build
    on = await make_session_bench(world, nursery, build)
    claim = await on.claim()
    await sql(world.pool, change)
    await on.tell(claim).wait()
    if not grace:
        await expect_refusal(world, claim.run, ErrorCode.AGENT_MISSING, provider)
        return
    now = await world.reload(claim.run)
    assert (now.state, now.reclaims, provider.calls) == (RunState.QUEUED, 0, 0)
    assert now.waiting_on
    assert now.not_before


async def expect_refusal(
    world: SeededTenant, run: Run, code: ErrorCode, provider: FakeProvider
) -> None:
    """Expect a run to have failed with *code* before anything was done for it."""
    now = await world.reload(run)
    assert now.state is RunState.FAILED
    assert now.error
    assert (now.error.code, now.stopped_by) == (code, code.value)
    assert provider.calls == 0
    assert await world.sessions.messages(world.scope(), run.session_id) == []


# --- memory ---------------------------------------------------------------------------------


async def tamper(pool: Pool) -> None:
    """Change the first message behind the back of whoever remembers it."""
    await sql(
        pool,
        """update messages set content = '[{"type": "text", "text": "tampered"}]' where seq = 1""",
    )


async def test_a_living_actor_reads_only_what_it_does_not_know(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """The transcript of the first run is still in memory for the second; the news are read."""
    gate = BlockingTool()
    gate.open.set()
    provider = FakeProvider([call("hold"), text("one"), text("two")])
    on = await make_session_bench(world, nursery, builder_for(provider, gate))
    await on.execute("first")
    await tamper(world.pool)
    await on.execute("second")
    sent = [block for message in provider.requests[-1].messages for block in message.content]
    assert [block.text for block in sent if isinstance(block, TextBlock)] == [
        "first",
        "one",
        "second",
    ]


async def test_an_actor_that_passivated_reads_everything_again(database: str, clock: MockClock) -> None:
    """After its idle time nothing is left of it, and the next run finds a new one."""
    gate = BlockingTool()
    gate.open.set()
    provider = FakeProvider([call("hold"), text("one"), text("two")])
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_seeded_tenant(pool), HandClock(clock, pool)
        async with started_worker(world, provider, gate.tool, settings=TICKING):
            one = await world.session()
            await until(world, [await world.run(one, "first")])
            await tamper(pool)
            await time.turn(TICKING.session_idle_timeout + 1, step=5)
            await until(world, [await world.run(one, "second")])
    sent = [block for message in provider.requests[-1].messages for block in message.content]
    assert [block.text for block in sent if isinstance(block, TextBlock)] == [
        "tampered",
        "one",
        "second",
    ]


async def test_messages_added_by_others_between_runs_are_seen(
    world: SeededTenant, nursery: trio.Nursery
) -> None:
    """What an actor remembers is a beginning, never taken for the whole."""
    provider = FakeProvider([text("one"), text("two")])
    on = await make_session_bench(world, nursery, builder_for(provider))
    await on.execute("first")
    await world.sessions.add_message(world.scope(), on.session.id, "user", (TextBlock("by the way"),))
    await on.execute("second")
    last = provider.requests[-1].messages[-1]
    assert [block.text for block in last.content if isinstance(block, TextBlock)] == [
        "by the way",
        "second",
    ]


@pytest.mark.parametrize("appended", [0, 2, 3])
async def test_messages_that_the_database_lost_are_forgotten(
    world: SeededTenant, nursery: trio.Nursery, appended: int
) -> None:
    """R-F12: after a failover that lost commits the model sees what is stored."""
    provider = FakeProvider([text("one"), call("unknown"), text("lost"), text("three")])
    on = await make_session_bench(world, nursery, builder_for(provider))
    await on.execute("first")
    lost = await on.execute("lost")
    await sql(world.pool, "delete from runs where id = $1", lost.id)
    await sql(world.pool, "update sessions set last_seq = 2, next_run_seq = 2")
    for number in range(appended):
        await world.sessions.add_message(
            world.scope(), on.session.id, "user", (TextBlock(f"since {number}"),)
        )
    await on.execute("third")
    sent = [block for message in provider.requests[-1].messages for block in message.content]
    assert [block.text for block in sent if isinstance(block, TextBlock)] == [
        *("first", "one"),
        *(f"since {number}" for number in range(appended)),
        "third",
    ]
