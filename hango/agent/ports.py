"""What the agent loop needs from the outside, as Protocols.

The loop is pure: it sees providers, tools and storage only through these.  Implementations live in
`hango.providers`, `hango.tools` and `hango.store`, fit by shape, and never import this room; a test
assigns each to its Protocol, so that mypy proves the fit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from hango.domain import (
    Ledger,
    Message,
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


class Provider(Protocol):
    """A model provider."""

    @property
    def name(self) -> str:
        """The name agents choose it by, such as ``openai``; opaque blocks carry it."""
        ...

    def stream(
        self, request: ProviderRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ProviderEvent]]:
        """Ask for one answer; its events come as they arrive, the last one is a `Stop`.

        A stream that ends without a `Stop` was cut short.  Leaving the context closes the
        connection, whatever the reason.  Retrying is the caller's business.

        Raises:
            ProviderError: the call failed, on entry or between events; subclasses say how.
        """
        ...


class Toolbox(Protocol):
    """The tools one agent may use."""

    def definitions(self) -> Sequence[ToolDefinition]:
        """Return what the model is told, in a stable order; may be empty."""
        ...

    async def call(self, call: ToolUseBlock, context: ToolContext, ledger: Ledger) -> Result:
        """Run one call, or tell what came of it before, as its tool's effects and *ledger* demand.

        Every failure of a tool is an error result.  Raised are `trio.Cancelled`, and:

        Raises:
            StoreError: as the ledger does; it is no failure of the tool.
        """
        ...

    async def deny(
        self, call: ToolUseBlock, reason: str, context: ToolContext, ledger: Ledger
    ) -> Result:
        """Answer a call that a guardrail denies, without starting it.

        What became of the same call in an earlier execution, where it was permitted, is told instead.
        Raises as `call`.
        """
        ...


class Transcript(Protocol):
    """One session's messages, under one claim.

    Every write is fenced, and retried while the database is away and the lease holds.

    Raises:
        StateConflict: the claim is no longer ours (any write); nothing was changed.
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
    """Where a run's progress is told."""

    def emit(self, event: RunEvent) -> None:
        """Take *event*; never blocks and never raises."""
        ...


@attrs.frozen
class NullSink:
    """A sink for progress that nobody watches."""

    def emit(self, event: RunEvent) -> None:
        """Drop *event*."""


NULL_SINK: EventSink = NullSink()


@attrs.frozen
class RunOptions:
    """What a caller of `run` may choose; grows by fields, so that the signature never changes.

    Attributes:
        depth: 0 for a run of its own; sub-agents count up.
        parent_sink: where the events of a sub-agent go as well.
        resume_from: turns already finished and stored; the loop goes on after them.
    """

    depth: int = 0
    parent_sink: EventSink | None = None
    resume_from: int = 0
