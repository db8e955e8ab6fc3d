"""The trace of one execution of a run: its spans, its metrics, and how much it has done.

An event sink: it learns from the loop's events, passes them on, and adds no statement to the database.
The spans: ``invoke_agent`` for the execution, the root of its trace; below it a ``chain`` for each
turn, and below that a ``chat`` for the model call, its tries included, and an ``execute_tool`` for each
tool call.

Rule: whatever becomes of the execution, every span is ended, and says how.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Protocol

import attrs
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from hango.domain import (
    AgentDefinition,
    AttemptRejected,
    Message,
    Retrying,
    Run,
    RunEvent,
    RunOutcome,
    RunState,
    Streamed,
    ToolDenied,
    ToolFinished,
    ToolStarted,
    TurnRestarted,
    TurnStarted,
)
from hango.telemetry import attributes, metrics, names
from hango.telemetry.ending import Ending
from hango.telemetry.run_ids import root_ids
from hango.telemetry.turn_trace import TurnTrace

_tracer = trace.get_tracer("hango")


class EventReceiver(Protocol):
    """Receives a run's progress."""

    def emit(self, event: RunEvent) -> None:
        """Take *event*; never blocks and never raises."""
        ...


class Conversation(Protocol):
    """A transcript, as far as it is recorded."""

    @property
    def messages(self) -> Collection[Message]:
        """All messages of the session, oldest first."""
        ...


@attrs.frozen
class Links:
    """What a run's trace refers to, as it is stored.

    Attributes:
        request: the ``traceparent`` of the request that created the run.
        previous_span_id: the root of the execution before this one.
    """

    request: str | None = None
    previous_span_id: str | None = None


@attrs.define(eq=False)
class RunTrace:
    """One execution of one run; an event sink.

    Attributes:
        run: as it was claimed.
        onward: gets every event as well.
        root: the span of the execution.
        shared: attributes that every span of the run has.
        provider, model: those of the agent; empty until it is known.
        state: what the run was put into at the end; None if nothing could be written.
        outcome: how it ended; None if it has not ended, or not here.
        turn: the open turn; None between turns.
    """

    run: Run
    onward: EventReceiver
    root: Span
    shared: dict[str, attributes.Value]
    provider: str = ""
    model: str = ""
    agent_name: str = ""
    state: RunState | None = None
    outcome: RunOutcome | None = None
    inference_calls: int = 0
    tool_calls: int = 0
    turn: TurnTrace | None = None
    _tools: Collection[str] = ()
    _gated: bool = False
    _said: Conversation | None = None
    _started: float = attrs.field(factory=time.perf_counter, init=False)

    @property
    def seconds(self) -> float:
        """How long the execution has taken so far."""
        return time.perf_counter() - self._started

    def prepared(
        self, agent: AgentDefinition, tools: Collection[str], said: Conversation | None = None
    ) -> None:
        """Take note of the agent that is executed.

        Args:
            agent: as it is today.
            tools: the names of its tools.
            said: the transcript of its session.
        """
        self.provider, self.model, self.agent_name = agent.provider, agent.model, agent.name
        self._tools, self._said, self._gated = tools, said, agent.completion is not None
        self.shared.update(attributes.of_agent(agent, self.run.lane))
        if self.root.is_recording():
            self.root.update_name(f"invoke_agent {agent.name}")
            self.root.set_attributes(
                {**self.shared, **attributes.of_model(agent.provider, agent.model)}
            )

    def emit(self, event: RunEvent) -> None:
        """Record *event*, and pass it on."""
        self._record(event)
        self.onward.emit(event)

    def _record(self, event: RunEvent) -> None:
        match event:
            case Streamed():
                if self.turn is not None:
                    self.turn.streamed(event.event)
            case TurnStarted():
                self.inference_calls += 1
                self._open(event.turn).ask_model()
            case Retrying() | TurnRestarted():
                self._open(event.turn).retry(event.code, broke_off=isinstance(event, TurnRestarted))
            case ToolStarted():
                self.tool_calls += 1
                self._open(event.turn).start_tool(event.call)
            case ToolDenied():
                self._open(event.turn).deny_tool(event.call)
            case ToolFinished():
                if self.turn is not None:
                    self.turn.finish_tool(event.result)
            case AttemptRejected():
                self._open(event.turn).event("gate.rejected", {names.TURN: event.turn})

    def _open(self, number: int) -> TurnTrace:
        """Return the trace of a turn; ends the one before it."""
        if self.turn is not None and self.turn.number == number:
            return self.turn
        if self.turn is not None:
            self.turn.end()
        self.turn = TurnTrace.begin(
            number,
            shared=self.shared,
            provider=self.provider,
            model=self.model,
            tools=self._tools,
            said=lambda: () if self._said is None else self._said.messages,
        )
        return self.turn

    def end(self) -> None:
        """End every span, and count; `state` and `outcome` say how the execution ended."""
        ending = Ending.of(self.state, self.outcome)
        if self.turn is not None:
            if self._gated and self.state is RunState.SUCCEEDED:
                self.turn.event("gate.passed", {names.TURN: self.turn.number})
            self.turn.end(ending)
        self._count(ending)
        if not self.root.is_recording():
            return
        found: dict[str, attributes.Value] = {
            "hango.run.state": self.state.value if self.state else "unknown"
        }
        if self.outcome is not None:
            reason = attributes.finish_reason(self.outcome.stop_reason)
            found |= attributes.gen_ai_usage(self.outcome.usage)
            found |= {
                "gen_ai.response.finish_reasons": (reason,),
                "hango.turns": self.outcome.iterations,
            }
        self.root.set_attributes({**found, **ending.described})
        if ending.is_error:
            self.root.set_status(Status(StatusCode.ERROR, ending.kind))
        self.root.end()

    def _count(self, ending: Ending) -> None:
        labels = {names.AGENT_NAME: metrics.agents.of(self.agent_name)} if self.agent_name else {}
        error = {names.ERROR_TYPE: ending.kind} if ending.is_error else {}
        metrics.agent_duration.record(self.seconds, {**labels, **error})
        metrics.agent_inference_calls.record(self.inference_calls, labels)
        metrics.agent_tool_calls.record(self.tool_calls, labels)
        if self.state is not None and self.state.terminal:
            metrics.run_ended.add(1, {names.STATE: self.state.value, **error})
            if self.outcome is not None:
                metrics.run_iterations.record(self.outcome.iterations)


@contextmanager
def traced(run: Run, links: Links, onward: EventReceiver, *, lease: float) -> Iterator[RunTrace]:
    """Trace the execution of *run* while the block runs; its root is the current span meanwhile.

    Args:
        run: as it was claimed.
        links: what its trace refers to.
        onward: gets every event as well.
        lease: seconds until the claim lapses.
    """
    if run.claim_epoch == 1 and run.started_at is not None:
        waited = run.started_at - run.created_at  # both by the clock of the database
        metrics.run_pickup_delay.record(max(waited.total_seconds(), 0.0))
    shared = dict(attributes.of_run(run))
    root = _start_root(run, links, shared)
    if root.is_recording():
        _add_claim(root, run, lease)
    is_known = root.get_span_context().is_valid
    token = contexts.attach(trace.set_span_in_context(root)) if is_known else None
    found = RunTrace(run, onward, root, shared)
    try:
        yield found
    finally:
        found.end()
        if token is not None:
            contexts.detach(token)


def _start_root(run: Run, links: Links, shared: attributes.Attributes) -> Span:
    start: dict[str, attributes.Value] = {
        names.OPERATION: "invoke_agent",
        "gen_ai.agent.id": str(run.agent_id),
        names.LANE: run.lane,
        **attributes.kind("agent"),
        **shared,
    }
    refers_to = list(_links(run, links))
    for link in refers_to:
        if link.context.trace_id != int(run.trace_id, 16):
            start["hango.request.trace_id"] = f"{link.context.trace_id:032x}"
    with root_ids(int(run.trace_id, 16), int(run.span_id or "0", 16)):
        return _tracer.start_span("invoke_agent", Context(), SpanKind.INTERNAL, start, links=refers_to)


def _links(run: Run, links: Links) -> Iterator[Link]:
    if links.request is not None:
        _, trace_id, span_id, flags = links.request.split("-")[:4]
        yield _link(trace_id, span_id, int(flags, 16))
    if links.previous_span_id is not None:
        yield _link(run.trace_id, links.previous_span_id, TraceFlags.SAMPLED)


def _link(trace_id: str, span_id: str, flags: int) -> Link:
    where = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(flags)
    )
    return Link(where)


def _add_claim(root: Span, run: Run, lease: float) -> None:
    """Record the claim, and that the run was taken back before it, if it was."""
    deadline = datetime.now(UTC) + timedelta(seconds=lease)
    claimed = {"hango.owner.id": str(run.owner_id), "hango.lease.deadline": deadline.isoformat()}
    root.add_event("run.claimed", {**claimed, "hango.claim.epoch": run.claim_epoch})
    if run.reclaims:
        previous = {"hango.previous_owner.id": str(run.last_owner_id)}
        root.add_event("run.reclaimed", {**previous, "hango.resume_turn": run.resume_turn})
