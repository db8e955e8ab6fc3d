"""The actor of a session: executes the session's runs, strictly one after another.

Rule: an execution ends in one write, its settle, or in none.  None is right whenever authority is in
doubt: then the lease lapses, the sweep queues the run again, and finished turns are not repeated.
Whatever goes wrong inside one run stays inside it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import attrs
import trio

from hango.actors.actor import Inbox
from hango.actors.execution import Build, NotHere, PreparedRun, failure
from hango.actors.leases import INTERRUPT_GRACE, Leases
from hango.actors.listener import OwnNotifications
from hango.agent import AgentLoop, EventSink, ExecutionOptions, SessionHistory
from hango.domain import ErrorCode, Interrupted, Message, RunError, RunOutcome, RunState
from hango.errors import StoreError, StoreUnavailable
from hango.safe_errors import leaves
from hango.store.claims import Claim
from hango.telemetry import logs
from hango.telemetry.run_log import log_claim, log_end
from hango.telemetry.run_trace import RunTrace, traced

T = TypeVar("T")

RELEASE_GRACE = 5.0  # seconds a process that is being stopped gives the database to take a run back

_log = logging.getLogger(__name__)


class OnDone(Protocol):
    """What is called when an execution is over."""

    def __call__(self, *, ended: bool) -> None:
        """Go on: the run has *ended*, or is to be executed again."""
        ...


@attrs.frozen
class Execute:
    """Execute one claimed run.

    Attributes:
        claim: the run, its lease, and the only handle that can write for it.
        on_done: called in the execution's ``finally``, whatever became of the run, so that the slot is
            freed even if the actor is cancelled; with whether the run has ended.
    """

    claim: Claim
    on_done: OnDone


async def session(
    inbox: Inbox[Execute], build: Build, leases: Leases, own: OwnNotifications, events: EventSink
) -> None:
    """Execute the runs of one session; its transcript is kept in memory from one to the next."""
    known: Sequence[Message] = ()
    history = SessionHistory()
    async for message in inbox:
        claim, ended = message.claim, False
        try:
            with _observed(claim, events) as trace:
                execution = _Execution(claim, build, leases, own, trace, known, history)
                await execution.run(inbox)
                ended = trace.state is not None and trace.state.terminal
        finally:
            leases.remove(claim.key)
            message.on_done(ended=ended)
        known = execution.known


@contextmanager
def _observed(claim: Claim, events: EventSink) -> Iterator[RunTrace]:
    """Trace and log an execution, from its claim to its end."""
    run = claim.run
    with (
        logs.bind(
            tenant_id=run.tenant_id,
            agent_id=run.agent_id,
            session_id=run.session_id,
            run_id=run.id,
            trace_id=run.trace_id,
            span_id=run.span_id,
        ),
        traced(run, claim.links, events, lease=claim.lease.left) as trace,
    ):
        log_claim(run)
        try:
            yield trace
        finally:
            log_end(trace)


@attrs.define(eq=False)
class _Execution:
    """One execution of one run.

    Attributes:
        own: where the notification of the settle is announced.
        trace: receives the run's progress, and how it ends.
        known: the session's messages as far as they are known here, oldest first.
        history: what the loops of earlier runs have found out about them.
        prepared: the loop and its transcript; None until they are built.
    """

    claim: Claim
    build: Build
    leases: Leases
    own: OwnNotifications
    trace: RunTrace
    known: Sequence[Message]
    history: SessionHistory
    prepared: PreparedRun | None = None

    async def run(self, inbox: Inbox[Execute]) -> None:
        """Execute the run, then settle it if there is an outcome to write."""
        outcome = await self._execute(inbox)
        if isinstance(outcome, NotHere):
            outcome = await self._postpone(outcome)
        if outcome is not None and not await self._settle(outcome):
            error = RunError(ErrorCode.INTERNAL, "the end of the run could not be stored")
            await self._settle(self._failure(error))

    async def _execute(self, inbox: Inbox[Execute]) -> RunOutcome | Interrupted | NotHere | None:
        """Execute under the lease; return what is to be written, None for nothing.

        The border of the run: whatever foreign code raises ends here, `SystemExit` included.  Cancelled
        from outside, which only an error of the process does, it ends the lease and is raised again.
        """
        claim, interrupted = self.claim, False
        try:
            with inbox.interruptible(claim.key, claim.lease.deadline) as scope:
                if claim.lease.lost or claim.cancelled or self.leases.stopping:
                    scope.cancel()  # for what came before there was a scope to interrupt
                try:
                    return await self._work()
                finally:
                    interrupted = scope.cancel_called
        except BaseException as error:
            if trio.current_effective_deadline() == -math.inf:
                await self._abandon()
                raise
            if not interrupted:
                return self._failed(error)
            if _is_store_error(error):
                _log.warning("a write was lost while the run was being interrupted: %s", error)
            else:
                _log.exception("the run raised while it was being interrupted")
        return await self._interrupted()

    async def _work(self) -> RunOutcome | Interrupted | NotHere:
        """Build the loop and run it, within the time one execution may take."""
        prepared = await self.build(self.claim, self.known)
        if isinstance(prepared, RunOutcome | NotHere):
            return prepared
        self.prepared, self.known = prepared, prepared.transcript.messages
        prepared.loop.history = self.history
        tools = [tool.name for tool in prepared.loop.tools.definitions()]
        self.trace.prepared(prepared.agent, tools, prepared.transcript)
        run, deadline = self.claim.run, trio.current_time() + prepared.deadline
        self.claim.lease.renew_until(deadline + INTERRUPT_GRACE)  # even if nothing below ends
        with trio.move_on_at(deadline):
            options = ExecutionOptions(resume_from=run.resume_turn)
            return await prepared.loop.run(run.session_id, run.input, self.trace, options)
        await self._catch_up()
        late = f"the run took longer than {prepared.deadline:g} s"
        return prepared.loop.failed(RunError(ErrorCode.DEADLINE_EXCEEDED, late))

    def _failed(self, error: BaseException) -> RunOutcome | None:
        """Return the outcome of an execution that raised; an error of the store fails no run."""
        if _is_store_error(error):
            _log.warning("the execution was given up, its lease will lapse: %s", error)
            return None
        _log.error("the run failed on an unexpected error", exc_info=error)
        found = RunError(ErrorCode.INTERNAL, f"an unexpected {type(error).__name__}")
        return self._ask_loop(lambda loop: loop.failed(found)) or self._failure(found)

    def _failure(self, error: RunError) -> RunOutcome:
        """Return a failure that stores nothing but how far the run had got."""
        run = self.claim.run
        turns = [m.turn or 0 for m in self.known if m.run_id == run.id and m.role == "user"]
        return attrs.evolve(
            failure(run, error),
            iterations=max(run.resume_turn, *turns, 0),
            usage=self.prepared.loop.usage if self.prepared else run.usage,
        )

    async def _interrupted(self) -> RunOutcome | Interrupted | None:
        """Return the outcome of an interrupted execution; None if it no longer has authority."""
        if not self.claim.lease.left:
            _log.warning("the lease was lost, so nothing more is written")
            return None
        try:
            await self._catch_up()
        except StoreError as error:
            _log.warning("it is not known what was stored, the lease will lapse: %s", error)
            return None
        return self._ask_loop(lambda loop: loop.interrupted()) or Interrupted()

    async def _catch_up(self) -> None:
        """Learn what an interrupted write did, so that the outcome fits what is stored."""
        if self.prepared is not None:
            await self._while_held(self.prepared.transcript.catch_up)

    def _ask_loop(self, ask: Callable[[AgentLoop], T]) -> T | None:
        """Ask the loop what it had not stored yet; None if there is no loop, or it raises."""
        if self.prepared is None:
            return None
        try:
            return ask(self.prepared.loop)
        except Exception:  # noqa: BLE001 - the border of the run
            _log.exception("what the run had not stored yet is lost")
            return None

    async def _settle(self, outcome: RunOutcome | Interrupted) -> bool:
        """Write the outcome; return False if it is such that it cannot be written.  Never raises."""
        self.own.expect(self.claim.run.id)
        try:
            state = await self._while_held(lambda: self.claim.settle(outcome))
        except Exception as error:  # noqa: BLE001 - the border of the run
            self.own.forget(self.claim.run.id)
            if _is_store_error(error):
                _log.warning("the run could not be settled, its lease will lapse: %s", error)
                return True
            _log.exception("the end of the run cannot be stored")
            return False
        self.trace.state = state
        self.trace.outcome = outcome if isinstance(outcome, RunOutcome) else None
        return True

    async def _postpone(self, lack: NotHere) -> RunOutcome | None:
        """Put the run back for another process; return its failure once that was tried too long."""
        self.own.expect(self.claim.run.id)
        try:
            if await self._while_held(lambda: self.claim.postpone(lack.waiting_on, grace=lack.grace)):
                _log.info("the run waits for a process that has %s", lack.waiting_on)
                self.trace.state = RunState.QUEUED
                return None
        except StoreError as error:
            _log.warning("the run could not be put back, its lease will lapse: %s", error)
            return None
        finally:
            self.own.forget(self.claim.run.id)
        missing = f"not registered in any process for {lack.grace:g} s: {lack.waiting_on}"
        return self._failure(RunError(ErrorCode.AGENT_MISSING, missing))

    async def _abandon(self) -> None:
        """End the lease at once: the next sweep takes the run back, and counts it."""
        self.leases.remove(self.claim.key)  # a renewal on its way gives no more time
        self.claim.lease.cap(trio.current_time() + RELEASE_GRACE)
        try:
            await self._while_held(self.claim.abandon)
        except StoreError as error:
            _log.warning("the lease could not be ended and will lapse: %s", error)

    async def _while_held(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do *work*, which may be done twice, whatever is cancelled outside.

        It has until the lease ends, and no less: heartbeats go on meanwhile, and move that end.

        Raises:
            StoreUnavailable: the lease has ended.
        """
        lease = self.claim.lease
        while trio.current_time() < lease.deadline:
            with trio.CancelScope(shield=True, deadline=lease.deadline):
                return await work()
        raise StoreUnavailable("the lease has ended")


def _is_store_error(error: BaseException) -> bool:
    """Return whether *error* is an error of the store, or a group with one."""
    return any(isinstance(leaf, StoreError) for leaf in leaves(error))
