"""Progress of a run on standard error: live on a terminal, plain lines elsewhere.

Rule: emitting an event never waits for the terminal.  Events go into a bounded channel and a thread
writes them; events that a slow terminal cannot take are dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

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
    TurnRestarted,
    TurnStarted,
)
from hango.text import printable

_MAX_WAITING = 1000  # events; some seconds of a fast model
_MAX_LINE = 200  # bytes
_MAX_TAIL = 60  # characters of the answer that are shown while it arrives
_FLUSH_TIMEOUT = 1.0  # seconds for the last events to be written
_CLEAR = "\r\x1b[K"  # to the start of the line, and erase it


@attrs.frozen
class Progress:
    """An event sink that writes events to standard error; see `open_progress`."""

    _send: trio.MemorySendChannel[RunEvent]
    _live: bool

    def emit(self, event: RunEvent) -> None:
        """Show *event*; dropped if the terminal is far behind or closed."""
        if self._live or not isinstance(event, Streamed):
            with contextlib.suppress(
                trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError
            ):
                self._send.send_nowait(event)


@attrs.define
class _Lines:
    """Writes a line for each event; on a terminal also a status line that is overwritten.

    Attributes:
        _live: standard error is a terminal.
        _tools: names of the tools that run, by call id.
        _answer: the end of the answer that is arriving.
    """

    _live: bool
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
                self._answer = (self._answer + text)[-_MAX_TAIL:]
                self._status(" ".join(self._answer.split()))
            case Retrying():
                self._line(f"  {event.code}: trying again in {event.delay:.1f} s")
            case TurnRestarted():
                self._answer = ""
                self._line(f"  {event.code}: the answer broke off; trying again in {event.delay:.1f} s")
            case ToolDenied(call=call):
                self._tools[call.id] = call.name
            case ToolStarted(call=call):
                self._tools[call.id] = call.name
                arguments = call.raw_input or json.dumps(call.input, ensure_ascii=False)
                self._line(f"  {call.name} {arguments}")
                self._status(call.name)
            case ToolFinished(result=result):
                name = self._tools.pop(result.tool_use_id, "tool")
                failed = " failed" if result.is_error else ""
                self._line(f"  {name}{failed}: {result.for_user or result.content}")
            case AttemptRejected(reason=reason):
                self._line(f"  not done: {reason}")
            case _:
                pass

    def _line(self, text: str) -> None:
        shown = cut_text(" ".join(printable(text).splitlines()), _MAX_LINE)
        self._write(f"{_CLEAR if self._live else ''}{shown}\n")

    def _status(self, text: str) -> None:
        if self._live:
            # a character may be two columns wide
            width = min(_MAX_TAIL, max(shutil.get_terminal_size().columns // 2 - 1, 1))
            # back to the start of the line, so that any other line overwrites it
            self._write(f"{_CLEAR}{printable(text)[-width:]}\r")

    def clear(self) -> None:
        """Erase the status line."""
        if self._live:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@asynccontextmanager
async def open_progress() -> AsyncIterator[Progress]:
    """Show progress on standard error while the context is open."""
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    send, receive = trio.open_memory_channel[RunEvent](_MAX_WAITING)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write, receive, _Lines(live))
        try:
            yield Progress(send, live)
        finally:
            send.close()
            nursery.cancel_scope.deadline = trio.current_time() + _FLUSH_TIMEOUT


async def _write(receive: trio.MemoryReceiveChannel[RunEvent], lines: _Lines) -> None:
    with receive, contextlib.suppress(OSError):  # standard error may be closed
        async for event in receive:
            events = [event]
            with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
                while True:
                    events.append(receive.receive_nowait())
            await trio.to_thread.run_sync(lines.show, events, abandon_on_cancel=True)
        await trio.to_thread.run_sync(lines.clear, abandon_on_cancel=True)
