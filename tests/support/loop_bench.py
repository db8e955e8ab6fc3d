"""Everything an agent loop needs round it, in memory: the bench the loop's tests work at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

import attrs

from hango.agent import (
    AgentLoop,
    CallbackThreads,
    Completion,
    ExecutionOptions,
    Guardrail,
    LoopLimits,
    Toolbox,
)
from hango.domain import (
    Block,
    ErrorCode,
    Interrupted,
    Ledger,
    OutcomeStatus,
    Result,
    RunEvent,
    RunOutcome,
    StopReason,
    TextBlock,
    ToolContext,
    ToolDefinition,
    ToolUseBlock,
    Usage,
)
from hango.testing import Answer, FakeProvider, MemoryLedger, answer

from support.checked_transcript import CheckedTranscript

Body = Callable[[ToolUseBlock, ToolContext], Awaitable[Result]]
T = TypeVar("T")
HI: tuple[Block, ...] = (TextBlock("hi"),)


def says(words: str, stop: StopReason | None = None) -> Answer:
    """Answer in words."""
    return answer(TextBlock(words), stop=stop, usage=Usage(10, 1))


def asks(*calls: ToolUseBlock, stop: StopReason | None = None) -> Answer:
    """Ask for tools."""
    return answer(*calls, stop=stop, usage=Usage(10, 2))


def ended(outcome: RunOutcome) -> tuple[OutcomeStatus, ErrorCode | None, str]:
    """Return how a run ended: status, error code, and what stopped it."""
    return outcome.status, outcome.error.code if outcome.error else None, outcome.stopped_by


async def noon(call: ToolUseBlock, context: ToolContext) -> Result:  # noqa: ARG001 - a tool's body
    """Answer every call alike."""
    return Result("noon")


@attrs.define(eq=False)
class FakeToolbox:
    """A toolbox of one body for every name; counts what it was asked."""

    body: Body = noon
    calls: list[ToolContext] = attrs.field(factory=list)

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the one tool there is."""
        return [ToolDefinition("get_time", "Tell the time.", {"type": "object"})]

    async def call(self, call: ToolUseBlock, context: ToolContext, ledger: Ledger) -> Result:  # noqa: ARG002 - its tools are harmless
        """Run the body."""
        self.calls.append(context)
        return await self.body(call, context)

    async def deny(
        self,
        call: ToolUseBlock,  # noqa: ARG002 - a denied call is one like any other
        reason: str,
        context: ToolContext,  # noqa: ARG002 - its tools are harmless
        ledger: Ledger,  # noqa: ARG002 - as above
    ) -> Result:
        """Deny a call."""
        return Result(f"denied: {reason}", is_error=True)


@attrs.define(eq=False)
class EventRecorder:
    """A sink that keeps everything."""

    events: list[RunEvent] = attrs.field(factory=list)

    def emit(self, event: RunEvent) -> None:
        """Keep *event*."""
        self.events.append(event)

    def of(self, kind: type[T]) -> list[T]:
        """Return the events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


@attrs.define(eq=False)
class Bench:
    """One run and its world; `loop` makes an execution of it, as often as a test likes.

    Attributes:
        toolbox: real tools, to be used in the place of `tools`.
    """

    script: Sequence[Answer] = ()
    body: Body = noon
    limits: LoopLimits = attrs.field(factory=LoopLimits)
    transcript: CheckedTranscript = attrs.field(factory=CheckedTranscript)
    ledger: MemoryLedger = attrs.field(factory=MemoryLedger)
    sink: EventRecorder = attrs.field(factory=EventRecorder)
    guardrails: Sequence[Guardrail] = attrs.field(default=(), kw_only=True)
    completion: Completion | None = attrs.field(default=None, kw_only=True)
    threads: CallbackThreads = attrs.field(factory=CallbackThreads, kw_only=True)
    provider: FakeProvider = attrs.field(init=False)
    tools: FakeToolbox = attrs.field(init=False)
    toolbox: Toolbox | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.provider = FakeProvider(self.script)
        self.tools = FakeToolbox(self.body)

    @property
    def run_id(self) -> UUID:
        """The run whose turns the transcript takes."""
        return self.transcript.run_id

    def loop(self) -> AgentLoop:
        """Return a fresh execution of the run."""
        return AgentLoop(
            run_id=self.run_id,
            provider=self.provider,
            tools=self.toolbox or self.tools,
            transcript=self.transcript,
            ledger=self.ledger,
            model="m",
            system_prompt="Be brief.",
            limits=self.limits,
            scope=None,
            usage=self.transcript.usage,
            guardrails=self.guardrails,
            completion=self.completion,
            threads=self.threads,
        )

    async def run(self, loop: AgentLoop | None = None, *, blocks: Sequence[Block] = HI) -> RunOutcome:
        """Execute the run to its end, store what is left, as a settle does, and return the outcome."""
        outcome = await self.execute(loop, blocks=blocks)
        assert isinstance(outcome, RunOutcome)
        self.settle(outcome)
        return outcome

    async def execute(
        self, loop: AgentLoop | None = None, *, blocks: Sequence[Block] = HI
    ) -> RunOutcome | Interrupted:
        """Execute the run from its last boundary."""
        options = ExecutionOptions(resume_from=self.transcript.resume_turn)
        return await (loop or self.loop()).run(self.transcript.session_id, blocks, self.sink, options)

    def settle(self, outcome: RunOutcome | Interrupted) -> None:
        """Store the messages of a terminal write."""
        self.transcript.store(outcome.messages)

    def story(self) -> list[str]:
        """Return the stored messages, each as ``turn role kinds``, with marks for the odd ones."""
        return [
            " ".join(
                [
                    str(message.turn),
                    message.role,
                    ",".join(block.TYPE for block in message.content),
                    *["partial"] * message.partial,
                    *["synthetic"] * message.synthetic,
                ]
            )
            for message in self.transcript.messages
        ]
