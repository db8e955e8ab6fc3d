"""An agent as a value, and its direct door: `Agent.loop`.

The durable door is a row of ``agents``, executed by `hango.actors`; both run the same loop.  What
belongs where: the agent says *may it?* (guardrails, limits: per problem), `RunOpts` says *with what?*
(the model: per call), and `Loop` and `Outcome` say *did it?* (observed).  None says *is it right?*:
that is for a tool, a gate, or whoever reads the text.

Rule: a direct run keeps nothing outside this process, so what it did is lost with it.
"""

from __future__ import annotations

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
from hango.domain import (
    ErrorCode,
    Interrupted,
    Limits,
    OutcomeStatus,
    RunError,
    RunOutcome,
    TextBlock,
    Usage,
    new_id,
)
from hango.errors import InvalidInput, LoopBusy

TOOL_TIMEOUT = 30.0  # seconds, as HANGO_TOOL_TIMEOUT

Status: TypeAlias = Literal["done", "incomplete", "pending", "error"]


class ToolSource(Protocol):
    """Where a direct run has its tools from; `hango.Toolkit` is one."""

    def toolbox(self, *, timeout: float) -> Toolbox:
        """Return the tools; *timeout* is the seconds one call may take."""
        ...


def _kept(guardrails: Sequence[Guardrail]) -> tuple[Guardrail, ...]:
    """Return them as they are now: an iterator is used up by one look, and would deny nothing then."""
    return tuple(guardrails)


@attrs.frozen(eq=False)
class Agent:
    """What somebody wants done, and how far it may go.

    Attributes:
        does: what it is for; told to nobody but people.
        soul: its system prompt.
        model: empty for the provider's own.
        tools, team, wait_for, on_metric: not for the direct door; `loop_unsupported` names them.
        guardrails: asked before every tool call, in this order.
        completion: the gate a run that is done has to pass.
        limits: None in one of its fields means what hango's settings default to; but no `run_deadline`.
    """

    name: str
    does: str = attrs.field(default="", kw_only=True)
    soul: str = attrs.field(default="", kw_only=True)
    model: str = attrs.field(default="", kw_only=True)
    tools: Sequence[object] = attrs.field(default=(), kw_only=True)
    team: Sequence[Agent] = attrs.field(default=(), kw_only=True)
    wait_for: object | None = attrs.field(default=None, kw_only=True)
    on_metric: object | None = attrs.field(default=None, kw_only=True)
    guardrails: Sequence[Guardrail] = attrs.field(default=(), kw_only=True, converter=_kept)
    completion: Completion | None = attrs.field(default=None, kw_only=True)
    limits: Limits = attrs.field(factory=Limits, kw_only=True)

    def check(self) -> None:
        """Refuse an agent that cannot be used as it is.

        Raises:
            InvalidInput: names which.
        """
        for name in ("name", "does", "soul", "model"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput("must be a string", field=name)
        for place, guardrail in enumerate(self.guardrails):
            if not callable(guardrail):
                raise InvalidInput("must be callable", field=f"guardrails.{place}")
        if self.completion is not None:
            if not isinstance(self.completion, Completion):
                raise InvalidInput("must be a Completion", field="completion")
            self.completion.check()
        if not isinstance(self.limits, Limits):
            raise InvalidInput("must be a Limits", field="limits")
        for name, value in attrs.asdict(self.limits).items():
            numbers = (int,) if name.startswith("max_") else (int, float)
            if value is not None and not (type(value) in numbers and 0 < value < math.inf):
                raise InvalidInput(f"must be a number above 0, not {value!r}", field=f"limits.{name}")

    def loop(self, provider: Provider, toolkit: ToolSource) -> Loop:
        """Open the direct door: the agent, driven over a provider and tools of the caller's own."""
        return Loop(self, provider, toolkit)


def loop_unsupported(spec: Agent) -> list[str]:
    """Name what *spec* declares and the direct door cannot honour, always in the same order."""
    declared = {
        "tools": bool(spec.tools),
        "team": bool(spec.team),
        "waitFor": spec.wait_for is not None,
        "onMetric": spec.on_metric is not None,
    }
    return [word for word, is_declared in declared.items() if is_declared]


@attrs.frozen
class RunOpts:
    """What one call may choose.

    Attributes:
        model: None or empty for the agent's.
    """

    model: str | None = None


@attrs.frozen
class Outcome:
    """What a direct run came to.

    Attributes:
        text: the last thing that was said; at the cap, by hango.
        status: pending is for runs that wait for somebody, which none here does yet.
        stopped_by: what stopped it; empty exactly when it is done.
        attempts: how often the model said that it was done, or was about to.
        turns: finished ones, of all attempts.
        result: what a verifier would be asked about.
    """

    text: str
    status: Status
    stopped_by: str
    attempts: int
    turns: int
    result: RunResult


@attrs.define(eq=False)
class Loop:
    """The direct door of an agent: one conversation a run, driven here and now.

    Attributes:
        _state: ``idle``, ``running``, or how the last run ended.
    """

    _agent: Agent
    _provider: Provider
    _toolkit: ToolSource
    _state: str = attrs.field(default="idle", init=False)
    _turns: int = attrs.field(default=0, init=False)
    _threads: CallbackThreads = attrs.field(factory=CallbackThreads, init=False)

    @property
    def status(self) -> str:
        """``idle`` at the start and after a run that was done; ``running``; else the last status."""
        return self._state

    @property
    def turns(self) -> int:
        """Turns finished, over all its runs."""
        return self._turns

    def unsupported(self) -> list[str]:
        """Name what its agent declares and this door cannot honour; see `loop_unsupported`."""
        return loop_unsupported(self._agent)

    async def run(self, prompt: str, opts: RunOpts | None = None) -> Outcome:
        """Run *prompt*, a conversation of its own, through to its end.

        What goes wrong in the run is its outcome.  Cancelled midway, tools that had begun may have
        taken effect; nothing else remains.

        Raises:
            InvalidInput: the prompt or something of the agent cannot be used; nothing was asked.
            LoopBusy: it is running already.
        """
        if self._state == "running":
            raise LoopBusy(
                "this loop is already running; for a second run at the same time call agent.loop()"
            )
        self._agent.check()
        if type(prompt) is not str:
            raise InvalidInput("must be a string", field="prompt")
        self._state, ended = "running", "error"
        try:
            outcome = await self._execute(prompt, (opts or RunOpts()).model or self._agent.model)
            ended = "idle" if outcome.status == "done" else outcome.status
        finally:
            self._state = ended
        return outcome

    async def _execute(self, prompt: str, model: str) -> Outcome:
        loop, deadline = self._loop(model), self._agent.limits.run_deadline
        ending: RunOutcome | Interrupted | None = None
        with trio.move_on_after(math.inf if deadline is None else deadline):
            ending = await loop.run(new_id(), (TextBlock(prompt),), NULL_SINK, ExecutionOptions())
        if not isinstance(ending, RunOutcome):  # cut short: a transcript in memory never says stop
            late = f"the run took longer than {deadline:g} s"
            ending = loop.failed(RunError(ErrorCode.DEADLINE_EXCEEDED, late))
        await loop.transcript.append(ending.messages)
        self._turns += ending.iterations
        return _outcome(loop, ending)

    def _loop(self, model: str) -> AgentLoop:
        limits, ours = self._agent.limits, LoopLimits()
        return AgentLoop(
            run_id=new_id(),
            provider=self._provider,
            tools=self._toolkit.toolbox(timeout=limits.tool_timeout or TOOL_TIMEOUT),
            transcript=MemoryTranscript(),
            ledger=MemoryLedger(),
            model=model,
            system_prompt=self._agent.soul,
            limits=LoopLimits(limits.max_iterations or ours.max_iterations, limits.max_tokens),
            scope=None,
            usage=Usage(),
            guardrails=self._agent.guardrails,
            completion=self._agent.completion,
            threads=self._threads,
        )


def _outcome(loop: AgentLoop, ending: RunOutcome) -> Outcome:
    messages, turns = loop.transcript.messages, ending.iterations
    result = result_of(messages, loop.run_id, usage=ending.usage, turns=turns)
    rejected = rejections(messages, loop.run_id)
    stopped_by = ending.stopped_by
    if ending.status is OutcomeStatus.ERROR and ending.error is not None:
        told = f"{ending.error.code}: {ending.error.message}"  # there is no other place for it here
        stopped_by = "; ".join(filter(None, (told, str(rejected))))
    return Outcome(
        text=result.text,
        status=ending.status.value,
        stopped_by=stopped_by,
        attempts=rejected.count + 1,
        turns=turns,
        result=result,
    )
