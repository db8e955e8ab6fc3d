"""Agents as values, and runs in this process: `Agent.loop`, without a database.

A durable run executes the same loop for a row of ``agents``.  `Agent` says what is wanted and how far a
run may go; `RunOpts` chooses for one call; `Loop` and `Outcome` report what happened.
Rule: a run in this process stores nothing; when the process ends, the run is lost.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import attrs
import trio

from hango.agent.callbacks import CallbackThreads
from hango.agent.completion import Completion, RunResult, rejections, result_of
from hango.agent.guardrails import Guardrail
from hango.agent.loop import AgentLoop
from hango.agent.memory import MemoryLedger, MemoryTranscript
from hango.agent.ports import NULL_SINK, ExecutionOptions, LoopLimits, Provider, Toolbox
from hango.agent.provider_border import check_model_options
from hango.domain import (
    ErrorCode,
    Interrupted,
    Limits,
    ModelOptions,
    OutcomeStatus,
    RunError,
    RunOutcome,
    TextBlock,
    Usage,
    new_id,
)
from hango.domain.defaults import TOOL_TIMEOUT
from hango.errors import InvalidInput, LoopBusy

_log = logging.getLogger(__name__)

Status: TypeAlias = Literal["done", "incomplete", "pending", "error"]


class ToolSource(Protocol):
    """Where a run gets its tools from; `hango.Toolkit` is one."""

    def toolbox(self, *, timeout: float, tools: Sequence[object] = ()) -> Toolbox:
        """Return the tools for a run.

        Args:
            timeout: seconds one call may take.
            tools: the agent's own; the run has them as well.
        """
        ...


@attrs.frozen(eq=False, kw_only=True)
class Agent:
    """What an agent is for, and how far it may go.

    Attributes:
        name: for people.
        description: what it is for; models do not get it.
        instructions: its system prompt.
        model: empty for the provider's own.
        tools: its own tools; a run has those of its toolkit as well.
        team, wait_for, on_metric: reserved; `loop_unsupported` names those that are set.
        guardrails: asked before every tool call, in this order.
        completion: the gate that a run has to pass before it is done.
        limits: a field that is None means the default of the setting; but there is no `run_deadline`.
        model_options: what it asks of its model.
        does, soul: the former names of `description` and `instructions`; always the same as these.
    """

    name: str = attrs.field(kw_only=False)
    description: str = ""
    instructions: str = ""
    model: str = ""
    tools: Sequence[object] = ()
    team: Sequence[Agent] = ()
    wait_for: object | None = None
    on_metric: object | None = None
    guardrails: Sequence[Guardrail] = ()
    completion: Completion | None = None
    limits: Limits = attrs.field(factory=Limits)
    model_options: ModelOptions = attrs.field(factory=ModelOptions)
    does: str = attrs.Factory(lambda self: self.description, takes_self=True)
    soul: str = attrs.Factory(lambda self: self.instructions, takes_self=True)

    def __attrs_post_init__(self) -> None:
        """Copy what was given by its former name, and what may be an iterator, usable only once."""
        object.__setattr__(self, "description", self.description or self.does)
        object.__setattr__(self, "instructions", self.instructions or self.soul)
        object.__setattr__(self, "tools", tuple(self.tools))
        object.__setattr__(self, "guardrails", tuple(self.guardrails))

    def check(self) -> None:
        """Check what can be checked before a run.

        Raises:
            InvalidInput: it names the first field that cannot be used.
        """
        for name in ("name", "description", "instructions", "model"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput("must be a string", field=name)
        if (self.description, self.instructions) != (self.does, self.soul):
            raise InvalidInput("give instructions or soul, description or does, but not both")
        for place, guardrail in enumerate(self.guardrails):
            if not callable(guardrail):
                raise InvalidInput("must be callable", field=f"guardrails.{place}")
        if self.completion is not None:
            if not isinstance(self.completion, Completion):
                raise InvalidInput("must be a Completion", field="completion")
            self.completion.check()
        if not isinstance(self.limits, Limits):
            raise InvalidInput("must be a Limits", field="limits")
        _check_limits(self.limits)
        if not isinstance(self.model_options, ModelOptions):
            raise InvalidInput("must be a ModelOptions", field="model_options")

    def loop(self, provider: Provider, toolkit: ToolSource) -> Loop:
        """Return a loop that runs the agent in this process."""
        return Loop(self, provider, toolkit)


def _check_limits(limits: Limits) -> None:
    retries = limits.stream_retries
    if retries is not None and not (type(retries) is int and retries >= 0):
        raise InvalidInput(f"must be 0 or more, not {retries!r}", field="limits.stream_retries")
    for name, value in attrs.asdict(attrs.evolve(limits, stream_retries=None)).items():
        numbers = (int,) if name.startswith("max_") else (int, float)
        if value is not None and not (type(value) in numbers and 0 < value < math.inf):
            raise InvalidInput(f"must be a number above 0, not {value!r}", field=f"limits.{name}")


def loop_unsupported(spec: Agent) -> list[str]:
    """Return the names of the fields of *spec* that `Loop.run` ignores, always in the same order."""
    declared = {
        "team": bool(spec.team),
        "wait_for": spec.wait_for is not None,
        "on_metric": spec.on_metric is not None,
    }
    return [field for field, is_declared in declared.items() if is_declared]


@attrs.frozen
class RunOpts:
    """Choices for one run.

    Attributes:
        model: None or empty for the agent's.
    """

    model: str | None = None


@attrs.frozen
class Outcome:
    """The outcome of a run in this process.

    Attributes:
        text: of the last answer; at the cap of iterations, a sentence of hango's.
        status: ``pending`` is reserved for runs that wait for a person.
        stopped_by: what stopped it; empty exactly when the status is ``done``.
        attempts: answers that claimed to be the last, including one that was cut off.
        turns: finished turns, of all attempts.
        result: what a verifier gets.
    """

    text: str
    status: Status
    stopped_by: str
    attempts: int
    turns: int
    result: RunResult


@attrs.define(eq=False)
class Loop:
    """Runs of one agent in this process, one at a time; each is a conversation of its own.

    Attributes:
        _state: ``idle``, ``running``, or the status of the last run.
        _turns: finished turns, over all runs.
        _threads: where the agent's sync guardrails and verifiers run.
    """

    _agent: Agent
    _provider: Provider
    _toolkit: ToolSource
    _state: str = attrs.field(default="idle", init=False)
    _turns: int = attrs.field(default=0, init=False)
    _threads: CallbackThreads = attrs.field(factory=CallbackThreads, init=False)

    @property
    def status(self) -> str:
        """``running``; ``idle`` before a run and after one that was done; else the last status."""
        return self._state

    @property
    def turns(self) -> int:
        """Finished turns, over all its runs."""
        return self._turns

    def unsupported(self) -> list[str]:
        """Return the names of the agent's fields that `run` ignores; see `loop_unsupported`."""
        return loop_unsupported(self._agent)

    async def run(self, prompt: str, opts: RunOpts | None = None) -> Outcome:
        """Run the agent on *prompt* until it is done or stopped.

        An error in the run becomes its outcome.  Cancelled midway, nothing is returned; tools that had
        started may have taken effect.

        Raises:
            InvalidInput: the prompt or a field of the agent cannot be used; no model was called.
            RegistrationError: the toolkit is not open, or two tools have the same name.
            LoopBusy: it is running already.
        """
        if self._state == "running":
            raise LoopBusy(
                "this loop is already running; for a second run at the same time call agent.loop()"
            )
        self._agent.check()
        if type(prompt) is not str:
            raise InvalidInput("must be a string", field="prompt")
        if ignored := self.unsupported():
            _log.warning("agent %r: a run in this process ignores %s", self._agent.name, ignored)
        loop = self._loop((opts or RunOpts()).model or self._agent.model)
        self._state, ended = "running", "error"
        try:
            outcome = await self._execute(loop, prompt)
            ended = "idle" if outcome.status == "done" else outcome.status
        finally:
            self._state = ended
        return outcome

    async def _execute(self, loop: AgentLoop, prompt: str) -> Outcome:
        deadline = self._agent.limits.run_deadline
        outcome: RunOutcome | Interrupted | None = None
        with trio.move_on_after(math.inf if deadline is None else deadline):
            outcome = await loop.run(new_id(), (TextBlock(prompt),), NULL_SINK, ExecutionOptions())
        if not isinstance(outcome, RunOutcome):  # the deadline: no other interrupt exists in memory
            late = f"the run took longer than {deadline:g} s"
            outcome = loop.failed(RunError(ErrorCode.DEADLINE_EXCEEDED, late))
        await loop.transcript.append(outcome.messages)
        self._turns += outcome.iterations
        return _outcome(loop, outcome)

    def _loop(self, model: str) -> AgentLoop:
        limits, defaults = self._agent.limits, LoopLimits()
        retries = limits.stream_retries
        timeout = limits.tool_timeout or TOOL_TIMEOUT
        # a toolkit of the user's own need not know of agents with tools
        own = {"tools": self._agent.tools} if self._agent.tools else {}
        toolbox = self._toolkit.toolbox(timeout=timeout, **own)
        names = [tool.name for tool in toolbox.definitions()]
        check_model_options(self._provider, model, self._agent.model_options, names)
        return AgentLoop(
            run_id=new_id(),
            provider=self._provider,
            tools=toolbox,
            transcript=MemoryTranscript(),
            ledger=MemoryLedger(),
            model=model,
            system_prompt=self._agent.instructions,
            limits=LoopLimits(
                limits.max_iterations or defaults.max_iterations,
                limits.max_tokens,
                stream_retries=defaults.stream_retries if retries is None else retries,
            ),
            scope=None,
            usage=Usage(),
            guardrails=self._agent.guardrails,
            completion=self._agent.completion,
            threads=self._threads,
            options=self._agent.model_options,
        )


def _outcome(loop: AgentLoop, ended: RunOutcome) -> Outcome:
    messages, turns = loop.transcript.messages, ended.iterations
    result = result_of(messages, loop.run_id, usage=ended.usage, turns=turns)
    rejected = rejections(messages, loop.run_id)
    stopped_by = ended.stopped_by
    if ended.status is OutcomeStatus.ERROR and ended.error is not None:
        error = f"{ended.error.code}: {ended.error.message}"  # an `Outcome` has no field for it
        stopped_by = "; ".join(filter(None, (error, str(rejected))))
    return Outcome(
        text=result.text,
        status=ended.status.value,
        stopped_by=stopped_by,
        attempts=rejected.count + 1,
        turns=turns,
        result=result,
    )
