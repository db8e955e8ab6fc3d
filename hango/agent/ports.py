"""What the agent loop needs from the outside: Protocols, limits and options.

The loop uses providers, tools and storage only through these Protocols.  `hango.providers`,
`hango.tools` and `hango.store` implement them without importing this package; a test assigns each
implementation to its Protocol, so that mypy checks it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from hango.domain import (
    Ledger,
    Message,
    ModelOptions,
    NewMessage,
    ProviderEvent,
    ProviderRequest,
    Result,
    RunEvent,
    ToolContext,
    ToolDefinition,
    ToolUseBlock,
    TurnEnd,
)
from hango.domain.defaults import MAX_ITERATIONS, MAX_TOOL_CALLS, STREAM_RETRIES


class Provider(Protocol):
    """A model provider."""

    @property
    def name(self) -> str:
        """The name that agents select it by, such as ``openai``; its opaque blocks carry it."""
        ...

    def stream(
        self, request: ProviderRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ProviderEvent]]:
        """Request one answer and yield its events as they arrive; the last one is a `Stop`.

        A stream that ends without a `Stop` was cut short.  Leaving the context closes the
        connection.  The caller retries, not the provider.

        Raises:
            ProviderError: the call failed, on entry or between events; subclasses say how.
        """
        ...


class OptionsChecker(Protocol):
    """A provider that takes model options; one without this method takes none."""

    def check_options(self, model: str, options: ModelOptions) -> None:
        """Check that the API has what *options* asks for; called when an agent is written.

        Their types and general bounds are checked already; nothing that waits may be done here.

        Raises:
            InvalidInput: its field is the name of the first option that cannot be sent.
        """
        ...


class Toolbox(Protocol):
    """The tools one agent may use."""

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return the definitions that the model gets, in a stable order; may be empty."""
        ...

    async def call(self, call: ToolUseBlock, context: ToolContext, ledger: Ledger) -> Result:
        """Run one call; or return its recorded result, if its effects and *ledger* forbid a second run.

        Every failure of a tool is returned as an error result.  Raises `trio.Cancelled`, and:

        Raises:
            StoreError: as the ledger does; this is not a failure of the tool.
        """
        ...

    async def deny(
        self, call: ToolUseBlock, reason: str, context: ToolContext, ledger: Ledger
    ) -> Result:
        """Return the error result of a call that a guardrail denied; its function does not run.

        If the call was permitted in an earlier execution, and started, the result says so instead.
        Raises as `call`.
        """
        ...


class Transcript(Protocol):
    """One session's messages, under one claim.

    Every write is fenced, and retried while the database is unreachable and the lease holds.

    Raises:
        StateConflict: by any write: the claim is no longer ours; nothing was changed.
    """

    @property
    def messages(self) -> Sequence[Message]:
        """All messages of the session, oldest first, those written here included."""
        ...

    async def append(self, messages: Sequence[NewMessage]) -> None:
        """Store *messages* at the end, all or none.  Repeating it changes nothing."""
        ...

    async def end_turn(self, boundary: TurnEnd) -> bool:
        """Store a finished turn: one statement, after which the turn never runs again.

        Returns whether the run may go on; False when it was cancelled or is to be handed over.
        """
        ...


class EventSink(Protocol):
    """Receives a run's progress."""

    def emit(self, event: RunEvent) -> None:
        """Take *event*; never blocks and never raises."""
        ...


@attrs.frozen
class NullSink:
    """A sink that drops every event."""

    def emit(self, event: RunEvent) -> None:
        """Drop *event*."""


NULL_SINK: EventSink = NullSink()


@attrs.frozen
class LoopLimits:
    """Bounds of one run.

    Attributes:
        max_iterations: turns a run may have, rejected ones included; then it ends as `iteration_cap`.
        max_tokens: tokens of one answer; None leaves it to the provider.
        max_tool_calls: calls that one answer may ask for; more fail the run.
        tools_at_once: calls of one turn that run at the same time.
        tries: provider calls for one answer, as long as nothing of it has arrived.
        stream_retries: further calls for it after it broke off.
    """

    max_iterations: int = MAX_ITERATIONS
    max_tokens: int | None = None
    max_tool_calls: int = MAX_TOOL_CALLS
    tools_at_once: int = 8
    tries: int = 4
    stream_retries: int = STREAM_RETRIES


@attrs.frozen
class ExecutionOptions:
    """What a caller of `AgentLoop.run` may choose; grows by fields, so its signature never changes.

    Attributes:
        depth: reserved for sub-agents, which count up from 0.
        parent_sink: reserved for sub-agents, whose events go there as well.
        resume_from: turns already finished and stored; the loop goes on after them.
    """

    depth: int = 0
    parent_sink: EventSink | None = None
    resume_from: int = 0


RunOptions = (
    ExecutionOptions  # the name in the design; for `RunOpts` of a `Loop` see `hango.agent.direct`
)
