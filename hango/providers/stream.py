"""One answer, from the bytes of its body to provider events; the same for every API.

Rule: the server must have said that its answer is over; whatever ends before that is an error.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Protocol, Self

import attrs

from hango.domain import JsonObject, ProviderEvent
from hango.errors import ProviderError, ProviderStreamBroken
from hango.providers import failures
from hango.providers.body import EventReader
from hango.providers.http import HttpRequest, ResponseBody, open_stream
from hango.providers.sse import SseEvent

# Seconds without a byte after the stop reason.  Only usage may still come, and a server that then
# neither ends the stream nor closes the connection is not worth the whole timeout.
TAIL_TIMEOUT = 5.0


class Answer(Protocol):
    """The answer so far, in the format of one API."""

    @property
    def recognised(self) -> bool:
        """Whether any part of it was of this API."""
        ...

    @property
    def begun(self) -> bool:
        """Whether any content has come."""
        ...

    @property
    def finished(self) -> bool:
        """Whether its stop reason has come; usage may still follow."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the server has said that nothing more follows."""
        ...

    def push(self, value: JsonObject) -> Iterable[ProviderEvent]:
        """Take the JSON of one event, or a whole answer that was not streamed; return what is new.

        A value of any shape raises nothing but a `ProviderError`.
        """
        ...

    def read_usage(self, value: JsonObject) -> Iterable[ProviderEvent]:
        """Return the token counts of an event that is an error; may be none."""
        ...

    def reject(self, error: failures.CallRejected) -> Iterable[ProviderEvent]:
        """End the answer with a call that the server refused to pass on.

        Raises:
            ProviderError: this API knows no such calls.
        """
        ...

    def finish(self) -> Iterable[ProviderEvent]:
        """End the answer; the last event is its `Stop`.

        Raises:
            UnsupportedStop: the stop reason is unknown, and there is no tool call.
            ProviderError: the stop reason is an error.
        """
        ...


@asynccontextmanager
async def open_answer(
    request: HttpRequest, answer: Answer, tail_timeout: float
) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
    """Send *request* and yield the events of its answer; leaving closes the connection.

    Raises:
        ProviderError: on entry or between events; it says whether to try again.
    """
    async with AsyncExitStack() as stack:
        try:
            body = await stack.enter_async_context(open_stream(request))
        except failures.CallRejected as error:
            yield _replay(tuple(answer.reject(error)))
        else:
            yield _Events(request, body, answer, tail_timeout)


@attrs.define
class _Events:
    """The events of one answer.

    Not an async generator: the code that starts one must close it, and this is handed on.

    Attributes:
        _received: events of the stream that were read and not taken yet.
        _ready: events for the caller.
        _read_all: the body has ended.
        _ended: the answer has.
        _error: raised once what came before it has been given out.
    """

    _request: HttpRequest
    _body: ResponseBody
    _answer: Answer
    _tail_timeout: float
    _reader: EventReader = attrs.field(init=False)
    _received: deque[SseEvent] = attrs.field(factory=deque, init=False)
    _ready: deque[ProviderEvent] = attrs.field(factory=deque, init=False)
    _read_all: bool = attrs.field(default=False, init=False)
    _ended: bool = attrs.field(default=False, init=False)
    _error: ProviderError | None = attrs.field(default=None, init=False)

    @_reader.default
    def _new_reader(self) -> EventReader:
        return EventReader(self._request.provider)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ProviderEvent:
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            if self._received:
                self._take(self._received.popleft())
            elif self._read_all:
                self._end()
            else:
                await self._read()
        return self._ready.popleft()

    async def _read(self) -> None:
        """Read more; once the answer is over, a broken or idle connection counts as closed."""
        over = self._answer.finished
        try:
            data = await self._body.read(self._tail_timeout if over else math.inf)
        except ProviderStreamBroken:
            if not over:
                raise
            data = b""
        self._read_all = not data
        self._received.extend(self._reader.feed(data) if data else self._reader.close())

    def _take(self, event: SseEvent) -> None:
        if event.data.startswith("[DONE]"):
            self._end(done=True)
        elif event.data.strip():
            self._push(event)

    def _push(self, event: SseEvent) -> None:
        if event.event == "error":
            self._fail(failures.from_body(0, event.data.encode(errors="replace")), event.data)
            return
        value = self._parse(event.data)
        if failure := failures.in_band(value):
            self._fail(failure, event.data)
            return
        try:
            self._ready.extend(self._answer.push(value))
        except RecursionError:
            raise self._malformed() from None
        if self._answer.closed:
            self._end(done=True)

    def _fail(self, failure: failures.ErrorReply, data: str) -> None:
        """End with *failure*, after the usage that came with it."""
        with suppress(ProviderError):
            self._ready.extend(self._answer.read_usage(self._parse(data)))
        request = self._request
        error = failures.to_error(failure, provider=request.provider, secret=request.secret)
        if not isinstance(error, failures.CallRejected):
            self._error = error
            return
        try:
            self._ready.extend(self._answer.reject(error))
        except ProviderError as final:
            self._error = final
        self._ended = True

    def _malformed(self) -> ProviderError:
        return ProviderStreamBroken(
            f"{self._request.provider} sent an event that is not JSON",
            code="malformed_event",
            retryable=True,
        )

    def _parse(self, data: str) -> JsonObject:
        """Return the JSON object of an event; empty if it is another value."""
        try:
            # NaN is not JSON and cannot be stored; servers that write it mean nothing by it
            value = json.loads(data, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            raise self._malformed() from None
        return value if isinstance(value, dict) else {}

    def _end(self, *, done: bool = False) -> None:
        """End the answer.

        The server must have said that it is over: by a stop reason, or by its last event after some
        content, which *done* says.
        """
        self._ended = True
        if self._reader.document and not self._answer.recognised:
            raise ProviderError(
                f"{self._request.provider} answered with other JSON; is its base URL right?",
                code="not_a_stream",
            )
        if not (self._answer.finished or (done and self._answer.begun)):
            raise ProviderStreamBroken(
                f"the stream of {self._request.provider} ended before the answer did",
                code="truncated",
                retryable=True,
            )
        self._ready.extend(self._answer.finish())


async def _replay(events: Iterable[ProviderEvent]) -> AsyncIterator[ProviderEvent]:
    for event in events:
        yield event
