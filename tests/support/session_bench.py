"""A session's actor alone on a stage, so that a test can be everything that usually surrounds it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from hango.actors import Build, ExecutionBuilder, WorkerSettings
from hango.actors.actor import Address, spawn
from hango.actors.leases import Leases
from hango.actors.listener import OwnNotifications
from hango.actors.session import Execute, session
from hango.domain import (
    Message,
    Run,
    Session,
)
from hango.store.claims import Claim
from hango.testing import FakeProvider
from hango.testing.plugin import SeededTenant

from support.workers import BlockingTool, EventRecorder, registry_of


@attrs.define
class SessionBench:
    """A session's actor alone, without anything that claims, renews or listens.

    Attributes:
        settled: how often an execution said that it is over.
    """

    world: SeededTenant
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

        def settled(*, ended: bool) -> None:  # noqa: ARG001 - as `OnDone` has it
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


def builder_for(provider: FakeProvider, *gates: BlockingTool) -> Build:
    """Prepare executions with this provider."""
    registry = registry_of(*(gate.tool for gate in gates))
    return ExecutionBuilder({"fake": provider}, registry, WorkerSettings()).build


async def make_session_bench(world: SeededTenant, nursery: trio.Nursery, build: Build) -> SessionBench:
    """Put a session's actor on stage."""
    leases = Leases()
    address = spawn(
        nursery,
        session,
        build,
        leases,
        OwnNotifications(),
        EventRecorder(),
        name="session under test",
        inbox_size=1,
    )
    return SessionBench(world, await world.session(), address, leases)
