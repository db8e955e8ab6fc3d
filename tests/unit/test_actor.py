"""The actor: order, interrupts, bounds, restarts, drain, leases, passivation."""

from __future__ import annotations

import logging
import math

import attrs
import pytest
import trio
import trio._core._run as trio_run  # the only door to its scheduler's dice
from trio.testing import MockClock, wait_all_tasks_blocked

from hango.actors.actor import NO_RESTART, Address, Inbox, Restart, spawn
from hango.errors import ActorStopped, InboxFull
from hango.telemetry.logs import TextLines


@attrs.frozen
class Do:
    """A piece of work that takes *seconds*, under *key*."""

    key: object
    seconds: float = 0.0
    deadline: float = math.inf


@attrs.frozen
class Did:
    """How a piece of work ended."""

    key: object
    cut_short: bool


@pytest.fixture(params=range(20))
def schedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed trio's scheduler, so that each parameter is one replayable order of tasks."""
    seed: int = request.param
    monkeypatch.setattr(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    trio_run._r.seed(seed)


async def worker(inbox: Inbox[Do], log: list[Did]) -> None:
    """Do what it is told, and log how that ended."""
    async for message in inbox:
        with inbox.interruptible(message.key, message.deadline) as scope:
            await trio.sleep(message.seconds)
        log.append(Did(message.key, scope.cancelled_caught))


async def idler(inbox: Inbox[Do], log: list[Did]) -> None:
    """Take messages without doing anything."""
    async for message in inbox:
        log.append(Did(message.key, cut_short=False))  # noqa: PERF401  # one by one is the point


def start(nursery: trio.Nursery, log: list[Did], inbox_size: int = 8) -> Address[Do]:
    """Spawn a worker."""
    return spawn(nursery, worker, log, name="worker", inbox_size=inbox_size)


async def test_messages_are_handled_one_at_a_time_in_the_order_of_telling(
    autojump_clock: MockClock,
) -> None:
    """A slow first message holds up a quick second one."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = start(nursery, log)
        for key, seconds in (("slow", 10.0), ("quick", 0.0), ("middling", 5.0)):
            address.tell(Do(key, seconds))
        address.close()
    assert [did.key for did in log] == ["slow", "quick", "middling"]
    assert autojump_clock.current_time() == pytest.approx(15.0)


async def test_an_interrupt_cuts_short_only_the_work_under_its_key(autojump_clock: MockClock) -> None:
    """Another key finds nothing; the right one ends that work, and the next message is untouched."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = start(nursery, log)
        address.tell(Do("first", 100.0))
        address.tell(Do("second", 1.0))
        await trio.sleep(1)
        assert not address.interrupt("second")
        assert address.interrupt("first")
        address.close()
    assert log == [Did("first", cut_short=True), Did("second", cut_short=False)]
    assert autojump_clock.current_time() == pytest.approx(2.0)


async def test_an_interrupt_too_early_or_too_late_hits_nothing(autojump_clock: MockClock) -> None:  # noqa: ARG001 - time passes
    """Before its scope opens and after it closed, an interrupt says that it found nothing."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = start(nursery, log)
        address.tell(Do("work", 1.0))
        assert not address.interrupt("work"), "told, but not begun"
        await trio.sleep(2)
        assert not address.interrupt("work"), "ended"
        address.tell(Do("work", 1.0))
        address.close()
    assert log == [Did("work", cut_short=False)] * 2


@pytest.mark.usefixtures("schedule")
async def test_interrupts_never_leak_into_other_work(autojump_clock: MockClock) -> None:  # noqa: ARG001 - time passes
    """Whatever the order of tasks, exactly the works whose interrupt answered True are cut short."""
    log: list[Did] = []
    hit: set[object] = set()
    async with trio.open_nursery() as nursery:
        address = start(nursery, log, inbox_size=20)
        for key in range(20):
            address.tell(Do(key, 1.0))

        async def interrupt(key: int) -> None:
            await trio.sleep(key)
            if address.interrupt(key):
                hit.add(key)

        for key in range(20):
            nursery.start_soon(interrupt, key)
        address.close()
    assert {did.key for did in log if did.cut_short} == hit
    assert [did.key for did in log] == list(range(20))


async def test_a_full_inbox_refuses_and_keeps_what_it_has() -> None:
    """The message beyond the bound is refused to its sender, not dropped in silence."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = start(nursery, log, inbox_size=1)
        address.tell(Do("taken"))
        with pytest.raises(InboxFull, match="worker"):
            address.tell(Do("refused"))
        address.close()
    assert log == [Did("taken", cut_short=False)]


async def test_a_retired_actor_finishes_its_queue_and_takes_nothing_more() -> None:
    """Retiring is not cancelling: what was taken is done."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = start(nursery, log)
        address.tell(Do("taken"))
        address.close()
        with pytest.raises(ActorStopped, match="worker"):
            address.tell(Do("refused"))
        await address.stopped.wait()
    assert log == [Did("taken", cut_short=False)]


async def test_a_stopped_actor_refuses_messages_and_interrupts() -> None:
    """Once it has ended there is nobody to tell, to interrupt or to give more time."""
    async with trio.open_nursery() as nursery:
        address = start(nursery, [])
        nursery.cancel_scope.cancel()
    assert address.stopped.is_set()
    with pytest.raises(ActorStopped):
        address.tell(Do("refused"))
    assert not address.interrupt("refused")
    address.extend("refused", 1.0)
    address.close()


async def test_one_interruptible_thing_at_a_time() -> None:
    """Nesting is refused: the key of the outer work would be lost."""

    async def nester(inbox: Inbox[Do]) -> None:
        with (
            inbox.interruptible("outer"),
            pytest.raises(RuntimeError, match="one interruptible"),
            inbox.interruptible("inner"),
        ):
            pass

    async with trio.open_nursery() as nursery:
        spawn(nursery, nester, name="nester", inbox_size=1)


# --- restarts -------------------------------------------------------------------------------


async def test_a_spent_restart_budget_lets_the_error_leave_the_nursery(
    autojump_clock: MockClock,
) -> None:
    """Five failures within the window are forgiven; the sixth is not."""
    lives: list[float] = []

    async def crash(_: Inbox[Do]) -> None:
        lives.append(autojump_clock.current_time())
        raise ValueError("bug")

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="bug")):
        async with trio.open_nursery() as nursery:
            address = spawn(nursery, crash, name="crash", inbox_size=1, restart=Restart(delay=1.0))
    assert lives == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert address.stopped.is_set()


async def test_failures_outside_the_window_are_forgotten(autojump_clock: MockClock) -> None:
    """An actor that fails now and then is started again for ever."""
    lives: list[float] = []

    async def crash(_: Inbox[Do]) -> None:
        lives.append(autojump_clock.current_time())
        await trio.sleep(20)
        raise ValueError("bug")

    with trio.move_on_after(1000):
        async with trio.open_nursery() as nursery:
            spawn(nursery, crash, name="crash", inbox_size=1, restart=Restart(limit=2))
    assert len(lives) == math.ceil(1000 / 20.5)


async def test_never_restarting_is_the_default() -> None:
    """Without a budget the first error leaves the nursery."""
    lives: list[int] = []

    async def crash(_: Inbox[Do]) -> None:
        lives.append(1)
        raise ValueError("bug")

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError)):
        async with trio.open_nursery() as nursery:
            spawn(nursery, crash, name="crash", inbox_size=1)
    assert lives == [1]
    assert NO_RESTART.limit == 0


async def test_a_restarted_actor_keeps_its_inbox_and_loses_only_the_message_it_was_at(
    autojump_clock: MockClock,  # noqa: ARG001 - time passes
) -> None:
    """The queue survives a crash, so senders need not know of it."""
    log: list[object] = []

    async def fragile(inbox: Inbox[Do]) -> None:
        async for message in inbox:
            if message.key == "poison":
                raise ValueError("bug")
            log.append(message.key)

    async with trio.open_nursery() as nursery:
        address = spawn(nursery, fragile, name="fragile", inbox_size=8, restart=Restart())
        for key in ("a", "poison", "b"):
            address.tell(Do(key))
        address.close()
    assert log == ["a", "b"]


async def test_a_crash_inside_interruptible_work_forgets_its_key(autojump_clock: MockClock) -> None:  # noqa: ARG001 - time passes
    """The next life can open its own scope."""
    log: list[object] = []

    async def fragile(inbox: Inbox[Do]) -> None:
        async for message in inbox:
            with inbox.interruptible(message.key):
                if message.key == "poison":
                    raise ValueError("bug")
                log.append(message.key)

    async with trio.open_nursery() as nursery:
        address = spawn(nursery, fragile, name="fragile", inbox_size=8, restart=Restart())
        address.tell(Do("poison"))
        address.tell(Do("b"))
        address.close()
    assert log == ["b"]


async def test_a_restart_is_logged_with_type_and_place_but_without_content(
    autojump_clock: MockClock,  # noqa: ARG001 - time passes
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D19: also the leaves of a group are named; no message is, since it may quote a prompt."""
    lives: list[int] = []

    async def crash(_: Inbox[Do]) -> None:
        lives.append(1)
        if len(lives) == 1:
            raise ExceptionGroup("quoted", [ValueError("quoted secret"), KeyError("secret")])

    with caplog.at_level(logging.ERROR):
        async with trio.open_nursery() as nursery:
            spawn(nursery, crash, name="crash", inbox_size=1, restart=Restart())
    line = TextLines().format(caplog.records[0])
    assert "crash failed" in line
    assert "ValueError" in line
    assert "KeyError" in line
    assert "test_actor.py" in line
    assert "quoted" not in line
    assert "secret" not in line


# --- deadlines ------------------------------------------------------------------------------


async def test_a_lease_is_the_deadline_of_the_work_and_a_heartbeat_moves_it(
    autojump_clock: MockClock,
) -> None:
    """While it is extended the work goes on; when that stops, the work is cut at the last deadline."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = start(nursery, log)
        address.tell(Do("run", 1000.0, deadline=90.0))
        for _ in range(5):
            await trio.sleep(30)
            address.extend("run", autojump_clock.current_time() + 90)
            address.extend("another", autojump_clock.current_time() + 9000)
        address.close()
    assert log == [Did("run", cut_short=True)]
    assert autojump_clock.current_time() == pytest.approx(5 * 30 + 90)


async def test_an_extended_deadline_lets_the_work_finish(autojump_clock: MockClock) -> None:  # noqa: ARG001 - time passes
    """Work longer than its first lease ends by itself if the lease is renewed."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = start(nursery, log)
        address.tell(Do("run", 100.0, deadline=90.0))
        await trio.sleep(60)
        address.extend("run", 150.0)
        address.close()
    assert log == [Did("run", cut_short=False)]


async def test_a_drain_deadline_does_not_cut_a_shielded_bounded_release(
    autojump_clock: MockClock,
) -> None:
    """D17: a cancelled nursery ends the work, and what must be written afterwards still is."""
    log: list[str] = []

    async def releasing(inbox: Inbox[Do]) -> None:
        async for message in inbox:
            try:
                with inbox.interruptible(message.key):
                    await trio.sleep_forever()
            finally:
                with trio.move_on_after(5, shield=True):
                    await trio.sleep(3)
                    log.append("released")
                with trio.move_on_after(5, shield=True):
                    await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        spawn(nursery, releasing, name="releasing", inbox_size=1).tell(Do("run"))
        nursery.cancel_scope.deadline = 120.0
    assert log == ["released"]
    assert autojump_clock.current_time() == pytest.approx(120 + 3 + 5)


async def test_the_scope_tells_an_interrupt_from_an_outer_cancellation() -> None:
    """An interrupt is caught by the work's scope; a cancellation from outside passes through."""
    log: list[Did] = []
    with trio.CancelScope() as outside:
        async with trio.open_nursery() as nursery:
            address = start(nursery, log)
            address.tell(Do("run", math.inf))
            await wait_all_tasks_blocked()
            outside.cancel()
            address.interrupt("run")
    assert log == [], "the actor must not go on after an outer cancellation"


# --- passivation ----------------------------------------------------------------------------


async def test_an_idle_actor_ends_by_itself(autojump_clock: MockClock) -> None:
    """The idle time counts from the last message on."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = spawn(nursery, idler, log, name="idler", inbox_size=1, idle=10.0)
        await trio.sleep(9)
        address.tell(Do("in time"))
        await trio.sleep(9)
        assert not address.stopped.is_set()
        await address.stopped.wait()
    assert autojump_clock.current_time() == pytest.approx(19.0)
    assert len(log) == 1


async def test_work_does_not_count_as_idleness(autojump_clock: MockClock) -> None:
    """An actor may work longer than its idle time."""
    log: list[Did] = []
    async with trio.open_nursery() as nursery:
        address = spawn(nursery, worker, log, name="worker", inbox_size=1, idle=10.0)
        address.tell(Do("long", 100.0))
        await address.stopped.wait()
    assert log == [Did("long", cut_short=False)]
    assert autojump_clock.current_time() == pytest.approx(110.0)


@pytest.mark.usefixtures("schedule")
async def test_a_message_at_the_instant_of_passivation_is_taken_or_refused_never_lost(
    autojump_clock: MockClock,  # noqa: ARG001 - time passes
) -> None:
    """300 tells, each due exactly when the actor gives up waiting: each is handled or refused."""
    log: list[Did] = []
    refused: list[object] = []
    async with trio.open_nursery() as nursery:
        for key in range(300):
            address = spawn(nursery, idler, log, name="idler", inbox_size=1, idle=10.0)

            async def tell(address: Address[Do] = address, key: int = key) -> None:
                await trio.sleep(10.0)
                try:
                    address.tell(Do(key))
                except ActorStopped:
                    refused.append(key)

            nursery.start_soon(tell)
    handled = [did.key for did in log]
    assert sorted([*handled, *refused], key=str) == sorted(range(300), key=str)
    assert handled, "some must come in time, or this test shows nothing"
    assert refused, "some must come late, or this test shows nothing"
