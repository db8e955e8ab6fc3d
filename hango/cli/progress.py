"""A run's progress on standard error: live on a terminal, plain lines elsewhere.

One rule: who tells an event never waits for the terminal.  Events go into a bounded channel, and a
thread writes; what a slow terminal cannot take is dropped, since the transcript has it all.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio
from rich.console import Console
from rich.status import Status
from rich.text import Text

from hango.codec import cut_text
from hango.domain import (
    AttemptRejected,
    Retrying,
    RunEvent,
    Streamed,
    TextDelta,
    ToolDenied,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)

_WAITING = 1000  # events; some seconds of a fast model
_LONGEST = 200  # bytes of a line's free part
_TAIL = 60  # characters of the answer so far
_GRACE = 1.0  # seconds for the last events to be written


def printable(text: str) -> str:
    """Return *text* without what could move the cursor or recolour a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


@attrs.frozen
class Progress:
    """An event sink that shows what it is told; see `open_progress`."""

    _send: trio.MemorySendChannel[RunEvent]
    _live: bool

    def emit(self, event: RunEvent) -> None:
        """Take *event*; dropped if the terminal is far behind, or gone."""
        if self._live or not isinstance(event, Streamed):
            with contextlib.suppress(
                trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError
            ):
                self._send.send_nowait(event)


@attrs.define
class _Lines:
    """Writes events: a line for what happened; on a terminal also what is going on now."""

    _console: Console
    _status: Status | None
    _tools: dict[str, str] = attrs.field(factory=dict)
    _answer: str = ""

    def show(self, events: Sequence[RunEvent]) -> None:
        """Write *events*, oldest first."""
        for event in events:
            self._show(event)

    def _show(self, event: RunEvent) -> None:
        match event:
            case TurnStarted():
                self._answer = ""
                self._line(f"turn {event.turn}")
            case Streamed(event=TextDelta(text=text)):
                self._answer = (self._answer + text)[-_TAIL:]
                self._now(" ".join(self._answer.split()))
            case Retrying():
                self._line(f"  {event.code}: trying again in {event.delay:.1f} s")
            case ToolDenied(call=call):
                self._tools[call.id] = call.name
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                arguments = call.raw_input or json.dumps(call.input, ensure_ascii=False)
                self._line(f"  {call.name} {arguments}")
                self._now(call.name)
            case ToolFinished(result=result):
                name = self._tools.pop(result.tool_use_id, "tool")
                failed = " failed" if result.is_error else ""
                self._line(f"  {name}{failed}: {result.for_user or result.content}")
            case AttemptRejected(reason=reason):
                self._line(f"  not done: {reason}")
            case _:
                pass

    def _line(self, text: str) -> None:
        shown = cut_text(" ".join(printable(text).splitlines()), _LONGEST)
        self._console.print(Text(shown), soft_wrap=True)

    def _now(self, text: str) -> None:
        if self._status:
            self._status.update(Text(printable(text)))


@asynccontextmanager
async def open_progress() -> AsyncIterator[Progress]:
    """Show progress on standard error until left."""
    console = Console(file=sys.stderr, highlight=False)
    status = console.status(Text("")) if console.is_terminal else None
    send, receive = trio.open_memory_channel[RunEvent](_WAITING)
    with status or contextlib.nullcontext():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write, receive, _Lines(console, status))
            try:
                yield Progress(send, status is not None)
            finally:
                send.close()
                nursery.cancel_scope.deadline = trio.current_time() + _GRACE


async def _write(receive: trio.MemoryReceiveChannel[RunEvent], lines: _Lines) -> None:
    with receive, contextlib.suppress(OSError):  # whoever read standard error has gone
        async for event in receive:
            events = [event]
            with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
                while True:
                    events.append(receive.receive_nowait())
            await trio.to_thread.run_sync(lines.show, events, abandon_on_cancel=True)
