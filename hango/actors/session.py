"""A session's actor: executes the session's runs, strictly one after another.

Rule: an execution ends in one write, its settle, or in none.  None is right whenever authority is in
doubt: then the lease lapses, the sweep queues the run again, and what was finished is not repeated.
Whatever goes wrong inside one run stays inside it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

import attrs
import trio

from hango.actors.actor import Inbox
from hango.actors.execution import Prepare, PreparedRun, failure
from hango.actors.leases import Leases
from hango.agent import AgentLoop, EventSink, ExecutionOptions
from hango.domain import ErrorCode, Interrupted, Message, RunError, RunOutcome
from hango.errors import StoreError, StoreUnavailable
from hango.safe_errors import leaves
from hango.store.claims import Claim
from hango.telemetry import logs

T = TypeVar("T")
Ending: TypeAlias = RunOutcome | Interrupted | None
"""What the settle writes; None writes nothing."""

RELEASE_GRACE = 5.0  # seconds a process that is being stopped gives the database to take a run back

_log = logging.getLogger(__name__)


@attrs.frozen
class Execute:
    """Execute one claimed run.

    Attributes:
        claim: the run, its lease, and the only handle that can write for it.
        settled: called once this process is done with the run, whatever became of it.
    """

    claim: Claim
    settled: Callable[[], None]


async def session(inbox: Inbox[Execute], prepare: Prepare, leases: Leases, events: EventSink) -> None:
    """Execute the runs of one session; its transcript is kept in memory from one to the next."""
    known: Sequence[Message] = ()
    async for message in inbox:
        claim = message.claim
        execution = _Execution(claim, prepare, leases, events, known)
        try:
            with logs.bind(
                tenant_id=claim.run.tenant_id,
                agent_id=claim.run.agent_id,
                session_id=claim.run.session_id,
                run_id=claim.run.id,
            ):
                await execution.run(inbox)
        finally:
            leases.remove(claim.key)
            message.settled()
        known = execution.known


@attrs.define(eq=False)
class _Execution:
    """One execution of one run.

    Attributes:
        known: the session's messages as far as they are known here, oldest first.
        prepared: None until it is.
    """

    claim: Claim
    prepare: Prepare
    leases: Leases
    events: EventSink
    known: Sequence[Message]
    prepared: PreparedRun | None = None

    async def run(self, inbox: Inbox[Execute]) -> None:
        """Execute and settle.  Cancelled from outside, the run is released all the same."""
        ending: Ending = None
        ended = False
        try:
            ending = await self._ending(inbox)
            ended = True
        finally:
            if not ended:  # the process is being torn down
                self.leases.remove(self.claim.key)  # a renewal on its way gives no more time
                self.claim.deadline = min(self.claim.deadline, trio.current_time() + RELEASE_GRACE)
                ending = await self._interrupted()
            await self._settle(ending)

    async def _ending(self, inbox: Inbox[Execute]) -> Ending:
        """Execute under the lease.  The border at which a run's own errors end."""
        claim, interrupted = self.claim, False
        try:
            with inbox.interruptible(claim.key, claim.deadline) as scope:
                if claim.lost or claim.cancelled or self.leases.stopping:
                    scope.cancel()  # for what came before there was a scope to interrupt
                try:
                    return await self._work()
                finally:
                    interrupted = scope.cancel_called
        except Exception as error:  # noqa: BLE001 - the border of the run
            if not interrupted:
                return self._failed(error)
            if _holds(error, StoreError):
                _log.warning("a write of the run that is interrupted came to nothing: %s", error)
            else:
                _log.exception("the run raised while it was being interrupted")
        return await self._interrupted()

    async def _work(self) -> RunOutcome | Interrupted:
        prepared = await self.prepare(self.claim, self.known)
        if isinstance(prepared, RunOutcome):
            return prepared
        self.prepared, self.known = prepared, prepared.transcript.messages
        run = self.claim.run
        with trio.move_on_after(prepared.deadline):
            options = ExecutionOptions(resume_from=run.resume_turn)
            return await prepared.loop.run(run.session_id, run.input, self.events, options)
        await self._catch_up()
        late = f"the run took longer than {prepared.deadline:g} s"
        return prepared.loop.failed(RunError(ErrorCode.DEADLINE_EXCEEDED, late))

    def _failed(self, error: Exception) -> Ending:
        """Say what an execution that raised *error* ends in; an error of the store fails no run."""
        if _holds(error, StoreError):
            _log.warning("the execution was given up, its lease will lapse: %s", error)
            return None
        _log.error("the run failed on an unexpected error", exc_info=error)
        return self._internal(f"an unexpected {type(error).__name__}")

    def _internal(self, message: str) -> RunOutcome:
        error = RunError(ErrorCode.INTERNAL, message)
        return self._ask(lambda loop: loop.failed(error)) or self._bare(error)

    def _bare(self, error: RunError) -> RunOutcome:
        """Return a failure that stores nothing but how far the run had got."""
        run = self.claim.run
        turns = [m.turn or 0 for m in self.known if m.run_id == run.id and m.role == "user"]
        return attrs.evolve(
            failure(run, error),
            iterations=max(run.resume_turn, *turns, 0),
            usage=self.prepared.loop.usage if self.prepared else run.usage,
        )

    async def _interrupted(self) -> Ending:
        """Say what an interrupted execution ends in: nothing if it no longer has authority."""
        if self.claim.lost or trio.current_time() >= self.claim.deadline:
            _log.warning("the lease was lost, so nothing more is written")
            return None
        try:
            await self._catch_up()
        except StoreError as error:
            _log.warning("what was stored is not known, the lease will lapse: %s", error)
            return None
        return self._ask(lambda loop: loop.interrupted()) or Interrupted()

    async def _catch_up(self) -> None:
        """Learn what a write did that was cut short, so that the ending fits what is stored."""
        if self.prepared is not None:
            await self._while_held(self.prepared.transcript.catch_up)

    def _ask(self, last_words: Callable[[AgentLoop], T]) -> T | None:
        """Ask the loop what it had not stored yet; None if there is no loop, or it cannot tell."""
        if self.prepared is None:
            return None
        try:
            return last_words(self.prepared.loop)
        except Exception:  # noqa: BLE001 - the border of the run
            _log.exception("what the run had not stored yet is lost")
            return None

    async def _settle(self, ending: Ending) -> None:
        """Write the ending, if there is one; never raises."""
        if ending is not None and not await self._write(ending):
            await self._write(self._bare(_UNSTORABLE))

    async def _write(self, ending: RunOutcome | Interrupted) -> bool:
        """Try to settle; return False if *ending* is such that it cannot be written."""
        try:
            state = await self._while_held(lambda: self.claim.settle(ending))
        except StoreError as error:
            _log.warning("the run could not be settled, its lease will lapse: %s", error)
        except Exception:  # noqa: BLE001 - the border of the run
            _log.exception("the end of the run cannot be stored")
            return False
        else:
            self.leases.ended(self.claim.run.id)
            _log.info("the run is %s", state)
        return True

    async def _while_held(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do *work*, which may be done twice, whatever is cancelled outside.

        It has until the lease ends, and no less: heartbeats go on while it waits, and move that end.

        Raises:
            StoreUnavailable: the lease has ended.
        """
        while trio.current_time() < self.claim.deadline:
            with trio.CancelScope(shield=True, deadline=self.claim.deadline):
                return await work()
        raise StoreUnavailable("the lease has ended")


_UNSTORABLE = RunError(ErrorCode.INTERNAL, "the end of the run could not be stored")


def _holds(error: BaseException, kind: type[BaseException]) -> bool:
    """Return whether *error* is a *kind*, or a group with one."""
    return any(isinstance(leaf, kind) for leaf in leaves(error))
