"""From the bytes of an answer to server-sent events, also where the answer is not a stream.  Pure.

Rule: the first character decides, since content types are often wrong.  An event stream never begins
with a brace or an angle bracket, so an answer that does is a document: a whole completion from a server
that does not stream, or an HTML page from something that is not a model.
"""

from __future__ import annotations

import attrs

from hango.codec import cut_text
from hango.errors import ProviderError, ProviderStreamBroken
from hango.providers import failures
from hango.providers.sse import MAX_EVENT, SseEvent, SseParser

_BLANK = b"\xef\xbb\xbf \t\r\n"  # a byte order mark, and white space


@attrs.define
class EventReader:
    """Turns the bytes of one answer into events; a JSON document is one event."""

    _provider: str
    _parser: SseParser = attrs.field(factory=SseParser)
    _kind: bytes = b""  # the first character, once it is known
    _document: bytearray = attrs.field(factory=bytearray)

    @property
    def document(self) -> bool:
        """Whether the answer is a JSON document and no stream."""
        return self._kind == b"{"

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take more of the body and return the events it completes; may be empty."""
        self._kind = self._kind or data.lstrip(_BLANK)[:1]
        if self._kind not in (b"{", b"<"):
            return self._parser.feed(data)
        self._document += data
        if len(self._document) > MAX_EVENT:
            raise ProviderStreamBroken(
                f"{self._provider} sent a document of more than {MAX_EVENT} bytes",
                code="event_too_large",
            )
        return []

    def close(self) -> list[SseEvent]:
        """Take the end of the body and return the events it completes.

        Raises:
            ProviderError: the body is an HTML page.
        """
        if self._kind == b"<":
            page = failures.from_body(0, bytes(self._document))
            said = cut_text(page.message, failures.MAX_MESSAGE)
            raise ProviderError(
                f"{self._provider} answered with {said}; is its base URL right?", code="not_a_stream"
            )
        if self._document:
            return [SseEvent(self._document.decode("utf-8-sig", errors="replace"))]
        return self._parser.close()
