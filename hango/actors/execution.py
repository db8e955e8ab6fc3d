"""From a claim to an agent loop, or to the reason why there will be none.

Rule: rights, agent and limits are those of today, read after the claim; who may not, or what cannot be
done as it was defined, fails before any provider is called.  Used by session actors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import attrs

from hango.actors.settings import WorkerSettings
from hango.agent import (
    AgentLoop,
    CallbackThreads,
    Completion,
    Guardrail,
    LoopLimits,
    Provider,
    Verifier,
)
from hango.domain import (
    AgentDefinition,
    ErrorCode,
    Gate,
    Message,
    OutcomeStatus,
    Run,
    RunError,
    RunOutcome,
    Scope,
    Session,
    User,
    UserStatus,
)
from hango.domain.defaults import STREAM_RETRIES
from hango.store.claims import Claim
from hango.store.transcript import SessionTranscript
from hango.tools import Registry, ToolSet

T = TypeVar("T")


@attrs.frozen
class PreparedRun:
    """All that an execution needs.

    Attributes:
        agent: as it is today.
        deadline: seconds it may take.
    """

    agent: AgentDefinition
    loop: AgentLoop
    transcript: SessionTranscript
    deadline: float


@attrs.frozen
class NotHere:
    """The run cannot be executed by this process, but maybe by another.

    Attributes:
        waiting_on: what is not registered here.
        grace: seconds for which other processes are given the chance.
    """

    waiting_on: str
    grace: float


Build: TypeAlias = Callable[[Claim, Sequence[Message]], Awaitable[PreparedRun | RunOutcome | NotHere]]
"""Takes a claim, and the beginning of its session's transcript as far as it is known."""


def failure(run: Run, error: RunError) -> RunOutcome:
    """Return the end of a run that fails where it stood, when there is no loop to tell more."""
    return RunOutcome(
        OutcomeStatus.ERROR,
        iterations=run.resume_turn,
        usage=run.usage,
        error=error,
        stopped_by=error.code.value,
    )


@attrs.frozen
class ExecutionBuilder:
    """Builds executions from what is registered in this process.

    Attributes:
        providers: by the name agents choose them by.
        settings: what agents without limits of their own get.
        guardrails, verifiers: by the name agents choose them by.
        threads: where the sync ones of these run.
    """

    providers: Mapping[str, Provider]
    registry: Registry
    settings: WorkerSettings
    guardrails: Mapping[str, Guardrail] = attrs.field(factory=dict)
    verifiers: Mapping[str, Verifier] = attrs.field(factory=dict)
    threads: CallbackThreads = attrs.field(factory=CallbackThreads)

    async def build(self, claim: Claim, known: Sequence[Message]) -> PreparedRun | RunOutcome | NotHere:
        """Read session, creator and agent, and build the loop; or return how the run ends without one.

        Raises:
            StoreError: as `Claim.load` and `SessionTranscript.open`.
        """
        execution = await claim.load()
        session, run = execution.session, claim.run
        try:
            creator = _authorized(execution.creator, session)
        except _Refused as refused:
            return failure(run, refused.error)
        if (agent := execution.agent) is None:
            return failure(run, RunError(ErrorCode.AGENT_MISSING, "the session's agent is gone"))
        # leaving one out would run what its owner wanted guarded
        if missing := self._missing(agent):
            return NotHere(missing, self.settings.missing_grace)
        transcript = await SessionTranscript.open(claim, execution, known)
        deadline = _own(agent.limits.run_deadline, self.settings.run_deadline)
        loop = self._loop(claim, agent, creator.scope, transcript)
        return PreparedRun(agent, loop, transcript, deadline)

    def _missing(self, agent: AgentDefinition) -> str:
        """Return what the agent needs and this process does not have; empty if it has all."""
        gate = [] if agent.completion is None else [agent.completion.verify]
        needed = {
            "provider": ([agent.provider], self.providers),
            "guardrail": (agent.guardrails, self.guardrails),
            "verifier": (gate, self.verifiers),
            "tool": (agent.tools, frozenset(self.registry.names())),
        }
        return ", ".join(
            f"{kind} {name!r}"
            for kind, (wanted, registered) in needed.items()
            for name in wanted
            if name not in registered
        )

    def _loop(
        self, claim: Claim, agent: AgentDefinition, scope: Scope, transcript: SessionTranscript
    ) -> AgentLoop:
        return AgentLoop(
            run_id=claim.run.id,
            provider=self.providers[agent.provider],
            tools=self._tools(agent),
            transcript=transcript,
            ledger=claim.ledger,
            model=agent.model,
            system_prompt=agent.system_prompt,
            limits=LoopLimits(
                max_iterations=_own(agent.limits.max_iterations, self.settings.max_iterations),
                max_tokens=agent.limits.max_tokens,
                stream_retries=_own(agent.limits.stream_retries, STREAM_RETRIES),
                max_tool_calls=self.settings.max_tool_calls,
            ),
            scope=scope,
            usage=claim.run.usage,
            guardrails=[self.guardrails[name] for name in agent.guardrails],
            completion=self._gate(agent.completion),
            threads=self.threads,
            options=agent.model_options,
        )

    def _gate(self, gate: Gate | None) -> Completion | None:
        return None if gate is None else Completion(self.verifiers[gate.verify], gate.max_attempts)

    def _tools(self, agent: AgentDefinition) -> ToolSet:
        return self.registry.view(
            agent.tools,
            timeout=_own(agent.limits.tool_timeout, self.settings.tool_timeout),
            result_limit=self.settings.tool_result_limit,
        )


class _Refused(Exception):
    """This execution ends before it begins; never leaves this module."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = RunError(code, message)


def _authorized(creator: User | None, session: Session) -> User:
    """Return *creator* if, today, they may act in *session*."""
    if creator is None or creator.status is not UserStatus.ACTIVE:
        raise _Refused(ErrorCode.CREATOR_INACTIVE, "the creator of the run is no longer active")
    if not creator.role.administers and creator.id != session.created_by:
        raise _Refused(
            ErrorCode.CREATOR_FORBIDDEN, "the creator of the run may no longer act in its session"
        )
    return creator


def _own(limit: T | None, default: T) -> T:
    return default if limit is None else limit
