"""A parser of server-sent events.  Pure.

Rule: every way of splitting the bytes gives the same events.

Follows the HTML standard, "Interpreting an event stream"
(https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation), except
that an unfinished event at the end is not dropped: servers forget the blank line after the last one.
"""

from __future__ import annotations

import codecs
import re

import attrs

from hango.errors import ProviderStreamBroken

MAX_EVENT = 8 * 1024 * 1024  # characters; a whole answer of any model fits many times over

_LINE_END = re.compile(r"\r\n|\n|\r")


@attrs.frozen
class SseEvent:
    """One event; *event* is its type, ``message`` unless the server sent another."""

    data: str
    event: str = "message"


class SseParser:
    """Turns the bytes of one stream into events.

    Comments and unknown fields are dropped, also ``id`` and ``retry``: model streams cannot resume.
    But a field ``error``, by which llama.cpp sends one, is an event of that name.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._limit = limit
        self._begun = False  # a byte order mark is one only at the very start
        self._after_cr = False  # a LF that comes next belongs to the CR before it
        self._line: list[str] = []  # pieces of the line not ended yet
        self._data: list[str] = []  # data lines of the event not ended yet
        self._event = ""
        self._size = 0  # characters held in _line and _data

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take more of the stream and return the events it completes; may be empty.

        Raises:
            ProviderStreamBroken: an event is longer than the limit.
        """
        return self._take(self._decoder.decode(data))

    def close(self) -> list[SseEvent]:
        """Take the end of the stream and return the event it ends in, if any."""
        return self._take(self._decoder.decode(b"", final=True) + "\n\n")

    def _take(self, text: str) -> list[SseEvent]:
        if not text:
            return []
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._after_cr:
            text = text.removeprefix("\n")
        self._after_cr = text.endswith("\r")
        return self._lines(_LINE_END.split(text))

    def _lines(self, pieces: list[str]) -> list[SseEvent]:
        events = []
        for piece in pieces[:-1]:
            self._hold(piece)
            if event := self._end_line():
                events.append(event)
        self._hold(pieces[-1])
        return events

    def _hold(self, piece: str) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise ProviderStreamBroken(
                f"the model's stream has an event of more than {self._limit} characters",
                code="event_too_large",
            )
        self._line.append(piece)

    def _end_line(self) -> SseEvent | None:
        line, self._line = "".join(self._line), []
        if not line:
            return self._end_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            return None
        if name == "error":  # no field of the standard, see above
            self._data.append(value)
            self._event = name
            return None
        self._size -= len(line)
        if name == "event":
            self._event = value
        return None

    def _end_event(self) -> SseEvent | None:
        data, event = self._data, self._event
        self._data, self._event, self._size = [], "", 0
        return SseEvent("\n".join(data), event or "message") if data else None
