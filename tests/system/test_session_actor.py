"""How one execution ends: well, badly, cut short, or without authority; and what an actor remembers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.actors import Prepared, WorkerSettings, Workshop
from hango.actors.actor import Address, spawn
from hango.actors.leases import Leases
from hango.actors.session import Execute, session
from hango.domain import (
    ErrorCode,
    Limits,
    Message,
    Outcome,
    OutcomeStatus,
    Role,
    Run,
    RunState,
    Session,
    TextBlock,
    Usage,
    UserStatus,
)
from hango.errors import StateConflict, StoreUnavailable
from hango.store.pool import Pool, open_pool
from hango.store.transcript import Claim
from hango.telemetry import names
from hango.telemetry.logs import TextLines
from hango.testing import FakeProvider, call, hanging, text

from support.counters import counted
from support.locks import row_held, until_waiting
from support.workers import TICKING, Gate, Recorder, Time, mock_now, registry_of, until, working
from support.world import World, make_world, sql


@attrs.define
class Stage:
    """A session's actor alone, without anything that claims, renews or listens.

    Attributes:
        settled: how often an execution said that it is over.
    """

    world: World
    session: Session
    address: Address[Execute]
    leases: Leases
    settled: int = 0

    async def claim(self, prompt: str = "hello") -> Claim:
        """Queue a run and claim it."""
        await self.world.run(self.session, prompt)
        claim = await self.world.queue().claim_next(self.session.id)
        assert claim is not None
        return claim

    def tell(self, claim: Claim) -> trio.Event:
        """Have *claim* executed; returns what is set when that is over."""
        over = trio.Event()

        def settled() -> None:
            self.settled += 1
            over.set()

        self.address.tell(Execute(claim, settled))
        self.leases.add(claim, self.address)
        return over

    async def execute(self, prompt: str = "hello") -> Run:
        """Queue a run, have it executed, and return it as it is then."""
        claim = await self.claim(prompt)
        await self.tell(claim).wait()
        return await self.world.reload(claim.run)

    async def stored(self) -> Sequence[Message]:
        """Read the session's messages."""
        return await self.world.sessions.messages(self.world.scope(), self.session.id)


Prepare = Callable[[Claim, Sequence[Message]], Awaitable[Prepared | Outcome]]


def workshop(provider: FakeProvider, *gates: Gate) -> Prepare:
    """Prepare executions with this provider."""
    registry = registry_of(*(gate.tool for gate in gates))
    return Workshop({"fake": provider}, registry, WorkerSettings()).prepare


async def stage(world: World, nursery: trio.Nursery, prepare: Prepare) -> Stage:
    """Put a session's actor on stage."""
    leases = Leases()
    address = spawn(
        nursery, session, prepare, leases, Recorder(), name="session under test", inbox_size=1
    )
    return Stage(world, await world.session(), address, leases)


async def steal(world: World, run: Run) -> None:
    """Let another process own the run."""
    await sql(world.pool, "update runs set claim_epoch = claim_epoch + 1 where id = $1", run.id)


@pytest.fixture
def clock() -> MockClock:
    """Have a clock that stands still until it is turned."""
    return MockClock()


# --- ends -----------------------------------------------------------------------------------


async def test_a_run_that_ends_well_is_settled_and_its_slot_freed(
    world: World, nursery: trio.Nursery
) -> None:
    """One claim, one execution, one end; the claim is no longer kept."""
    on = await stage(world, nursery, workshop(FakeProvider([text("hi")])))
    run = await on.execute()
    assert (run.state, on.settled, on.leases.alive()) == (RunState.SUCCEEDED, 1, [])
    assert [message.content for message in await on.stored()] == [
        (TextBlock("hello"),),
        (TextBlock("hi"),),
    ]


async def test_an_unexpected_error_fails_the_run_as_internal_and_tells_no_content(
    world: World, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """The row names the type, the log has the frames; the message, which may quote, is nowhere."""

    def broken(_: object) -> TextBlock:
        raise RuntimeError("quoted prompt")

    on = await stage(world, nursery, workshop(FakeProvider(broken), Gate()))
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
    assert [message.role for message in await on.stored()] == ["user"], "its input is kept"


@pytest.mark.parametrize("error", [ValueError("bug"), ExceptionGroup("", [ValueError("bug")])])
async def test_an_error_is_the_same_alone_and_in_a_group(
    world: World, nursery: trio.Nursery, error: Exception
) -> None:
    """D19: what a nursery wraps is judged by its leaves."""

    async def prepare(_: Claim, __: Sequence[Message]) -> Outcome:
        raise error

    run = await (await stage(world, nursery, prepare)).execute()
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
    world: World, nursery: trio.Nursery, error: Exception
) -> None:
    """D19: nothing is written, alone or in a group: the lease lapses and the run is driven again."""

    async def prepare(_: Claim, __: Sequence[Message]) -> Outcome:
        raise error

    on = await stage(world, nursery, prepare)
    run = await on.execute()
    assert run.state is RunState.RUNNING
    assert (on.settled, on.leases.alive()) == (1, []), "its lease must not be renewed"


async def test_an_end_that_cannot_be_stored_fails_the_run_instead_of_driving_it_for_ever(
    world: World, nursery: trio.Nursery
) -> None:
    """What the database refuses once it would refuse every time."""

    async def prepare(_: Claim, __: Sequence[Message]) -> Outcome:
        return Outcome(OutcomeStatus.DONE, iterations=10**20, usage=Usage())

    run = await (await stage(world, nursery, prepare)).execute()
    assert run.state is RunState.FAILED
    assert run.error
    assert run.error.code is ErrorCode.INTERNAL


@pytest.mark.rule(10)
async def test_the_run_deadline_fails_the_run_and_keeps_what_had_arrived(
    database: str, clock: MockClock
) -> None:
    """Its own outcome, not that of a lost lease: the agent's limit goes before the process's."""
    async with open_pool(database, now=mock_now) as pool:
        world = await make_world(pool, limits=Limits(run_deadline=60.0))
        time, provider = Time(clock, pool), FakeProvider([hanging(text("half an"))])
        async with working(world, provider, settings=TICKING):
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
    world: World, nursery: trio.Nursery
) -> None:
    """Rights are today's: queued while active, claimed when no longer."""
    provider = FakeProvider([text("never")])
    on = await stage(world, nursery, workshop(provider))
    claim = await on.claim()
    await sql(world.pool, "update users set status = $1", UserStatus.DISABLED)
    await on.tell(claim).wait()
    await expect_refusal(world, claim.run, ErrorCode.CREATOR_INACTIVE, provider)


@pytest.mark.rule(12)
async def test_a_creator_whose_rights_no_longer_reach_the_session_runs_nothing(
    world: World, nursery: trio.Nursery
) -> None:
    """An owner made a member acts on their own sessions only, not on somebody else's."""
    provider = FakeProvider([text("never")])
    on = await stage(world, nursery, workshop(provider))
    on.session = await world.session(Role.MEMBER)
    claim = await on.claim()
    await sql(world.pool, "update users set role = 'member'")
    await on.tell(claim).wait()
    await expect_refusal(world, claim.run, ErrorCode.CREATOR_FORBIDDEN, provider)


@pytest.mark.rule(12)
@pytest.mark.parametrize("role", list(Role))
async def test_whoever_made_the_session_may_run_in_it_whatever_their_role(
    world: World, nursery: trio.Nursery, role: Role
) -> None:
    """Members too, in what is theirs."""
    on = await stage(world, nursery, workshop(FakeProvider([text("hi")])))
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
        """update agents set completion = '{"verifier": "all_todos_done"}'""",
    ],
)
async def test_an_agent_that_cannot_be_run_as_defined_is_not_run_at_all(
    world: World, nursery: trio.Nursery, change: str
) -> None:
    """A provider, guardrail or gate this process does not have: failed, never left out in silence."""
    provider = FakeProvider([text("never")])
    on = await stage(world, nursery, workshop(provider))
    claim = await on.claim()
    await sql(world.pool, change)
    await on.tell(claim).wait()
    await expect_refusal(world, claim.run, ErrorCode.AGENT_MISSING, provider)


async def expect_refusal(world: World, run: Run, code: ErrorCode, provider: FakeProvider) -> None:
    """Expect a run to have failed with *code* before anything was done for it."""
    now = await world.reload(run)
    assert now.state is RunState.FAILED
    assert now.error
    assert (now.error.code, now.stopped_by) == (code, code.value)
    assert provider.calls == 0
    assert await world.sessions.messages(world.scope(), run.session_id) == []


# --- cut short ------------------------------------------------------------------------------


@pytest.mark.rule(11)
async def test_a_cancel_known_before_the_execution_begins_is_not_lost(
    world: World, nursery: trio.Nursery
) -> None:
    """D09 b: flagged between claim and execution, it ends the run without a provider call."""
    provider = FakeProvider([text("never")])
    on = await stage(world, nursery, workshop(provider))
    claim = await on.claim()
    await world.runs.cancel(world.scope(), claim.run.id)
    claim.cancelled = True
    await on.tell(claim).wait()
    assert (await world.reload(claim.run)).state is RunState.CANCELLED
    assert provider.calls == 0


async def test_what_is_told_after_the_drains_time_is_up_is_released_at_once(
    world: World, nursery: trio.Nursery
) -> None:
    """D16: no execution begins any more."""
    provider = FakeProvider([text("never")])
    on = await stage(world, nursery, workshop(provider))
    claim = await on.claim()
    on.leases.stop(within=5)
    await on.tell(claim).wait()
    now = await world.reload(claim.run)
    assert (now.state, now.owner_id, provider.calls) == (RunState.QUEUED, None, 0)


@pytest.mark.rule(3)
async def test_a_claim_already_lost_is_not_executed(world: World, nursery: trio.Nursery) -> None:
    """D03: nothing is asked of the provider, and nothing is written."""
    provider = FakeProvider([text("never")])
    on = await stage(world, nursery, workshop(provider))
    claim = await on.claim()
    claim.lost = True
    await on.tell(claim).wait()
    assert (await world.reload(claim.run)).state is RunState.RUNNING
    assert provider.calls == 0


@pytest.mark.rule(3)
async def test_an_outcome_reached_without_authority_is_not_written(
    world: World, nursery: trio.Nursery
) -> None:
    """D03: the answer was complete, but the lease was reported lost in the same moment."""

    async def prepare(claim: Claim, _: Sequence[Message]) -> Outcome:
        claim.lost = True
        return Outcome(OutcomeStatus.DONE, iterations=1, usage=Usage())

    run = await (await stage(world, nursery, prepare)).execute()
    assert run.state is RunState.RUNNING


@pytest.mark.rule(3)
async def test_a_run_stolen_in_the_middle_of_a_turn_is_left_to_its_new_owner(
    world: World, nursery: trio.Nursery
) -> None:
    """The boundary meets the fence: it is counted, and the execution ends without another write."""
    gate, rejected = Gate(), counted(names.FENCE_REJECTED)
    provider = FakeProvider([call("hold"), text("never")])
    on = await stage(world, nursery, workshop(provider, gate))
    claim = await on.claim()
    over = on.tell(claim)
    await gate.entered.wait()
    await steal(world, claim.run)
    gate.open.set()
    await over.wait()
    now = await world.reload(claim.run)
    assert (now.state, now.resume_turn, now.claim_epoch) == (RunState.RUNNING, 0, 2)
    assert counted(names.FENCE_REJECTED) == rejected + 1
    assert provider.calls == 1


async def test_an_error_raised_while_being_interrupted_is_still_an_interrupt(
    world: World, nursery: trio.Nursery
) -> None:
    """D19: a cancel is never recorded as a failure, whatever cleaning up raises."""
    entered = trio.Event()

    async def prepare(_: Claim, __: Sequence[Message]) -> Outcome:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            try:
                entered.set()
                await trio.sleep_forever()
            finally:
                raise ValueError("cleaning up failed")
        raise AssertionError

    on = await stage(world, nursery, prepare)
    claim = await on.claim()
    over = on.tell(claim)
    await entered.wait()
    await world.runs.cancel(world.scope(), claim.run.id)
    claim.cancelled = True
    assert on.address.interrupt(claim.key)
    await over.wait()
    assert (await world.reload(claim.run)).state is RunState.CANCELLED


async def test_the_settle_is_not_cut_by_a_cancellation(world: World) -> None:
    """D17: the actor is torn down exactly while the end is written; it is written all the same."""
    async with trio.open_nursery() as nursery:
        on = await stage(world, nursery, workshop(FakeProvider([text("hi")])))
        claim = await on.claim()
        lock = AsyncExitStack()
        await lock.enter_async_context(row_held(world.pool, "sessions", on.session.id))
        over = on.tell(claim)
        await until_waiting(world.pool)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert not over.is_set()
            await lock.aclose()
    assert (await world.reload(claim.run)).state is RunState.SUCCEEDED
    assert on.settled == 1


async def test_the_slot_is_freed_whatever_becomes_of_the_run(world: World) -> None:
    """Torn down in the middle of a tool, the claim is released and the slot's callback called."""
    gate = Gate()
    async with trio.open_nursery() as nursery:
        on = await stage(world, nursery, workshop(FakeProvider([call("hold")]), gate))
        claim = await on.claim()
        on.tell(claim)
        await gate.entered.wait()
        nursery.cancel_scope.cancel()
    assert (await world.reload(claim.run)).state is RunState.QUEUED
    assert (on.settled, on.leases.alive()) == (1, [])


# --- memory ---------------------------------------------------------------------------------


async def tamper(pool: Pool) -> None:
    """Change the first message behind the back of whoever remembers it."""
    await sql(
        pool,
        """update messages set content = '[{"type": "text", "text": "tampered"}]' where seq = 1""",
    )


async def test_a_living_actor_reads_only_what_it_does_not_know(
    world: World, nursery: trio.Nursery
) -> None:
    """The transcript of the first run is still in memory for the second; the news are read."""
    gate = Gate()
    gate.open.set()
    provider = FakeProvider([call("hold"), text("one"), text("two")])
    on = await stage(world, nursery, workshop(provider, gate))
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
    gate = Gate()
    gate.open.set()
    provider = FakeProvider([call("hold"), text("one"), text("two")])
    async with open_pool(database, now=mock_now) as pool:
        world, time = await make_world(pool), Time(clock, pool)
        async with working(world, provider, gate.tool, settings=TICKING):
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
    world: World, nursery: trio.Nursery
) -> None:
    """What an actor remembers is a beginning, never taken for the whole."""
    provider = FakeProvider([text("one"), text("two")])
    on = await stage(world, nursery, workshop(provider))
    await on.execute("first")
    await world.sessions.add_message(world.scope(), on.session.id, "user", (TextBlock("by the way"),))
    await on.execute("second")
    last = provider.requests[-1].messages[-1]
    assert [block.text for block in last.content if isinstance(block, TextBlock)] == [
        "by the way",
        "second",
    ]
