"""A provider for the Chat Completions API, streamed.

Rule: every failure is a `ProviderError` that says whether the same request may succeed later.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

import attrs
import httpx

from hango.call_ids import CallIds
from hango.domain import JsonObject, ProviderEvent, ProviderRequest
from hango.errors import InvalidInput, ProviderError, ProviderStreamBroken, RegistrationError
from hango.providers import failures
from hango.providers.http import HttpRequest, ResponseBody, open_stream
from hango.providers.openai.answer import ChatAnswer, read_usage
from hango.providers.openai.body import EventReader
from hango.providers.openai.request import build_request
from hango.providers.sse import SseEvent

DEFAULT_URL = "https://api.openai.com/v1"
PATH = "/chat/completions"
# Seconds without a byte after the finish reason.  Only usage may still come, and a server that then
# neither sends [DONE] nor closes the connection is not worth the whole timeout.
TAIL_TIMEOUT = 5.0
# OpenAI's reasoning models refuse "max_tokens"; most other servers know nothing else
# (https://platform.openai.com/docs/api-reference/chat/create).
_OPENAI_HOSTS = ("api.openai.com", ".openai.azure.com")


def _stripped(key: str) -> str:
    """Remove the line end of a key that was read from a file."""
    return key.strip()


@attrs.frozen
class OpenAIProvider:
    """A server of the Chat Completions API.

    Attributes:
        base_url: without a path, ``/v1`` is added; a path is kept as it is.
        api_key: empty for a server that wants none.
        timeout: seconds without a byte after which a stream counts as broken; comments are bytes too.
        name: agents refer to it, and opaque blocks carry it, so two servers need two names.
        model: used by requests that name none.
        key_name: what an error calls the key, such as the variable that holds it; may be empty.

    Raises:
        RegistrationError: the URL is not one, or the key has characters that no header can carry.
    """

    base_url: str = attrs.field(default=DEFAULT_URL, repr=False)  # may hold a password
    api_key: str = attrs.field(default="", repr=False, converter=_stripped)
    timeout: float = 60.0
    name: str = "openai"
    model: str = ""
    tail_timeout: float = TAIL_TIMEOUT
    key_name: str = ""
    _url: httpx.URL = attrs.field(init=False, repr=False)

    @_url.default
    def _normalised(self) -> httpx.URL:
        return chat_url(self.base_url)

    def __attrs_post_init__(self) -> None:
        """Refuse a key that no header can carry, without quoting it."""
        if not (self.api_key.isascii() and (self.api_key.isprintable() or not self.api_key)):
            raise RegistrationError(f"the key of provider {self.name!r} has characters that no key has")

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncIterator[AsyncIterator[ProviderEvent]]:
        """Ask for one answer; see `hango.agent.ports.Provider`."""
        offered = frozenset(tool.name for tool in request.tools)
        answer = ChatAnswer(self.name, CallIds.after(request), offered)
        async with AsyncExitStack() as stack:
            try:
                body = await stack.enter_async_context(open_stream(self._call(request)))
            except failures.CallRejected as error:
                yield _replay(tuple(answer.reject(error)))
            else:
                yield _Events(self, body, answer, EventReader(self.name))

    def _call(self, request: ProviderRequest) -> HttpRequest:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",  # compressors hold back what should be seen at once
            "user-agent": "hango",
        }
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        host = self._url.host
        field = "max_completion_tokens" if host.endswith(_OPENAI_HOSTS) else "max_tokens"
        try:
            asked = request if request.model else attrs.evolve(request, model=self.model)
            body = build_request(asked, provider=self.name, max_tokens_field=field)
        except InvalidInput as error:
            raise ProviderError(
                f"{self.name} cannot be asked: {error}", code="invalid_request"
            ) from error
        return HttpRequest(
            self.name, self._url, headers, body, self.timeout, self.api_key, self.key_name
        )


openai_provider = OpenAIProvider
"""Another name of the class; it was a function once."""


def chat_url(base_url: str) -> httpx.URL:
    """Return the URL to post to, from a base URL as people write it.

    Raises:
        RegistrationError: it is not an http or https URL.
    """
    try:
        url = httpx.URL(base_url.strip())
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or "%" in url.host:
        raise RegistrationError("a provider's base URL must look like https://api.example.com/v1")
    path = url.path.rstrip("/") or "/v1"
    return url.copy_with(path=path if path.endswith(PATH) else path + PATH)


@attrs.define
class _Events:
    """The events of one answer, decoded one server-sent event at a time.

    So the events before an error are yielded before it is raised, even if one read brought both.
    """

    _provider: OpenAIProvider
    _body: ResponseBody
    _answer: ChatAnswer
    _reader: EventReader
    _received: deque[SseEvent] = attrs.field(factory=deque)
    _ready: deque[ProviderEvent] = attrs.field(factory=deque)
    _read_all: bool = False
    _ended: bool = False
    _error: ProviderError | None = None

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
            data = await self._body.read(self._provider.tail_timeout if over else math.inf)
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

    def _fail(self, failure: failures.ErrorReply, data: str) -> None:
        """End with *failure*, after the usage that came with it."""
        with suppress(ProviderError):
            self._ready.extend(read_usage(self._parse(data)))
        error = failures.to_error(failure, provider=self._provider.name, secret=self._provider.api_key)
        if isinstance(error, failures.CallRejected):
            self._ended = True
            self._ready.extend(self._answer.reject(error))
        else:
            self._error = error

    def _malformed(self) -> ProviderError:
        return ProviderStreamBroken(
            f"{self._provider.name} sent an event that is not JSON",
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

        The server must have said that it is over: by a finish reason, or by [DONE] after some content.
        """
        self._ended = True
        if self._reader.document and not self._answer.chosen:
            raise ProviderError(
                f"{self._provider.name} answered with other JSON; is its base URL right?",
                code="not_a_stream",
            )
        if not (self._answer.finished or (done and self._answer.begun)):
            raise ProviderStreamBroken(
                f"the stream of {self._provider.name} ended before the answer did",
                code="truncated",
                retryable=True,
            )
        self._ready.extend(self._answer.finish())


async def _replay(events: Sequence[ProviderEvent]) -> AsyncIterator[ProviderEvent]:
    for event in events:
        yield event
