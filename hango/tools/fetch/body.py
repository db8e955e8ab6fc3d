"""The body of an HTTP answer as text: unpacked and decoded, within bounds.

Rule: whatever a server sends, reading ends: at the bound, counted in unpacked bytes, or with an
`InvalidInput`.  Nothing is unpacked beyond the bound, so a small body cannot become a large one.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import AsyncIterator

import attrs

from hango.errors import InvalidInput
from hango.tools.fetch.charsets import find_codec

# A packed body is longer than its content only by its frame; more is a stream that goes nowhere.
MAX_OVERHEAD = 64 * 1024  # bytes

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_HEADER = 2  # bytes of zlib's, RFC 1950 §2.2
_RAW_DEFLATE = -zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f"  # its first byte: the second may be in the next chunk
_PACKED = {"gzip", "x-gzip", "deflate"}
ACCEPT_ENCODING = "gzip, deflate"  # br and zstd would need packages, which bound less well

_TEXT_TYPE = re.compile(
    r"text/.+|application/(?:[^;]*\+)?(?:json|xml|yaml)"
    r"|application/(?:javascript|ecmascript|x-javascript|json-seq|jsonl|ndjson|x-ndjson|x-yaml|toml"
    r"|graphql|sql|x-sh|x-www-form-urlencoded|rtf|xhtml|problem\+json)|image/svg\+xml|message/.+"
)
_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_:.+-]{1,40})""", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WITHOUT_MARK = {"utf-32": "utf-32-le"}  # Python asks for a mark


@attrs.frozen
class FetchedBody:
    """The part of a body that was read; *truncated* when there was more."""

    data: bytes
    truncated: bool

    def text(self, content_type: str) -> str | None:
        """Decode by byte-order mark, declared charset, or UTF-8; None when this is not text."""
        charset = _charset(self.data, content_type)
        if b"\0" in self.data and not charset.startswith(("utf-16", "utf-32")):
            return None
        decoder = codecs.getincrementaldecoder(charset)(errors="replace")
        # cut in the middle of a character, the rest of it is waited for, and so left out
        return decoder.decode(self.data, final=not self.truncated).removeprefix("\ufeff")


def is_text(content_type: str) -> bool:
    """Return whether a body of this type may be shown; with no type, its bytes decide."""
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or _TEXT_TYPE.fullmatch(kind) is not None


async def read_body(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> FetchedBody:
    """Read *chunks* until they end or *limit* unpacked bytes are there.

    Raises:
        InvalidInput: it is packed in an unknown way, or not as declared.
    """
    unpack = _unpacker(encoding)
    data, sent = bytearray(), 0
    async for chunk in chunks:
        sent += len(chunk)
        data += unpack.feed(chunk, limit + 1 - len(data))
        if len(data) > limit or sent > limit + MAX_OVERHEAD:
            return FetchedBody(bytes(data[:limit]), truncated=True)
    unpack.end()
    return FetchedBody(bytes(data), truncated=False)


def _charset(data: bytes, content_type: str) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    declared = _CHARSET.search(content_type)
    name = (find_codec(declared[1]) if declared else None) or "utf-8"
    return _WITHOUT_MARK.get(name, name)


# --- unpacking ------------------------------------------------------------------------------


@attrs.define
class _Plain:
    """A body that is not packed."""

    def feed(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]

    def end(self) -> None:
        """Accept any end."""


@attrs.define
class _Inflate:
    """A gzip or deflate body; deflate comes with and, from some servers, without its header.

    Attributes:
        _head: the first bytes, until zlib can have read a header, to be fed again without one.
    """

    _encoding: str
    _inflate: zlib._Decompress = attrs.field(factory=lambda: zlib.decompressobj(_GZIP_OR_ZLIB))
    _head: bytes = b""

    def feed(self, chunk: bytes, room: int) -> bytes:
        """Unpack *chunk*, at most *room* bytes of it."""
        out = bytearray()
        while chunk and len(out) < room:
            if self._inflate.eof:
                if not chunk.startswith(_GZIP_MAGIC):
                    break  # padding, which everybody passes over
                self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)  # one more member
            out += self._step(chunk, room - len(out))
            chunk = self._inflate.unconsumed_tail or self._inflate.unused_data
        return bytes(out)

    def _step(self, chunk: bytes, room: int) -> bytes:
        head = self._head
        try:
            out = self._inflate.decompress(chunk, room)
        except zlib.error:
            if len(head) >= _HEADER or self._encoding != "deflate":
                raise InvalidInput(f"the body is not {self._encoding}, as it was declared") from None
            self._inflate = zlib.decompressobj(_RAW_DEFLATE)
            self._head = b"\0" * _HEADER  # there is none
            return self._step(head + chunk, room)
        if len(head) < _HEADER:
            self._head = head + chunk[:_HEADER]
        return out

    def end(self) -> None:
        if self._head and not self._inflate.eof:
            raise InvalidInput(f"the body ends in the middle of its {self._encoding} stream")


def _unpacker(encoding: str) -> _Plain | _Inflate:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name in _PACKED:
        return _Inflate(name)
    raise InvalidInput(f"the body is packed as {name[:40]!r}, which cannot be unpacked")
