"""Connections that a table describes: read from ``connections.txt``, and made against a server.

The table says how a row is written.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import trio

TABLE = Path(__file__).with_name("connections.txt")
ENDS = ("open", "closed", "late", "cut", "left")
GET = b"GET /healthz HTTP/1.1\r\nHost: hango\r\n\r\n"
_WORDS = {
    "H": b"Host: hango\r\n",
    "G": GET,
    "PRI": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "chunk": b"1000\r\n" + b"x" * 0x1000 + b"\r\n",
}
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_LONGEST = 30.0  # seconds; a server that has not answered by then is stuck
_SMALL = 4096  # bytes of a receive buffer
_PAUSE = 0.03  # seconds; enough for an idle server, and what it is answered does not depend on it


@attrs.frozen
class Row:
    """One line of the table.

    Attributes:
        statuses: what is answered, in order.
        end: one of `ENDS`.
        steps: what the client does; an action is in angle brackets, anything else is sent.
    """

    name: str
    statuses: tuple[int, ...]
    end: str
    steps: tuple[bytes, ...]


def read_table(words: Mapping[str, bytes]) -> list[Row]:
    """Return the rows of the table; *words* are those of its words that depend on the server."""
    lines = TABLE.read_text("utf-8").splitlines()
    return [_row(line, {**_WORDS, **words}) for line in lines if line and not line.startswith("#")]


def _row(line: str, words: Mapping[str, bytes]) -> Row:
    name, expected, script = line.split(" | ", 2)
    *statuses, end = expected.split()
    counted = [status.partition("x") for status in statuses]
    return Row(
        name,
        tuple(int(status) for status, _, times in counted for _ in range(int(times or 1))),
        end,
        tuple(_text(step, words) for step in script.split(" >> ")),
    )


def _text(step: str, words: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a step: escapes and words replaced."""
    if step.startswith("<"):
        return step.encode()
    parts = re.split(r"\{([^{}]*)\}", step)
    return b"".join(_word(part, words) if n % 2 else _plain(part) for n, part in enumerate(parts))


def _word(word: str, words: Mapping[str, bytes]) -> bytes:
    if word.startswith("f "):
        kind, flags, stream, payload = word.split()[1:]
        return frame(int(kind), int(flags), int(stream), _payload(payload))
    text, _, times = word.rpartition("*")
    text, times = (text, times) if text else (word, "1")
    return (words.get(text) or _plain(text)) * int(times)


def _plain(text: str) -> bytes:
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def _payload(text: str) -> bytes:
    digits, _, times = text.partition("*")
    return bytes.fromhex(digits.replace("-", "")) * int(times or 1)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def post_with(key: str) -> bytes:
    """Return the word ``post``: the beginning of a request that a valid key makes."""
    fields = f"Host: hango\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    return f"POST /v1/sessions HTTP/1.1\r\n{fields}".encode()


async def connect(url: str, *, small: bool = False) -> trio.SocketStream:
    """Connect to the server at *url*; *small* limits what the kernel receives unread."""
    target = urlsplit(url)
    connected = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if small:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
    await connected.connect((target.hostname or "", target.port or 80))
    return trio.SocketStream(connected)


@attrs.define
class Player:
    """A client that does what a row says.

    Attributes:
        received: all that was answered so far.
    """

    stream: trio.SocketStream
    received: bytes = b""

    @classmethod
    async def connected(cls, url: str, row: Row) -> Player:
        """Connect as the row needs it."""
        return cls(await connect(url, small=b"<small>" in row.steps))

    async def play(self, row: Row) -> None:
        """Do every step."""
        drip = False
        for step in row.steps:
            match step:
                case b"<pause>":
                    await trio.sleep(_PAUSE)
                case b"<shut>":
                    await self.stream.send_eof()
                case b"<leave>":
                    self.stream.socket.close()
                case b"<reset>":
                    linger = struct.pack("ii", 1, 0)
                    self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.stream.socket.close()
                case b"<drip>" | b"<small>" | b"<nothing>":
                    drip = step == b"<drip>"
                case _:
                    await self._send(step, drip=drip)

    async def _send(self, data: bytes, *, drip: bool) -> None:
        pieces = [bytes([byte]) for byte in data] if drip else [data]
        with suppress(trio.BrokenResourceError):  # the server may have seen enough
            for piece in pieces:
                await self.stream.send_all(piece)

    async def send_what_is_taken(self, row: Row) -> None:
        """Do every step; give up sending when nothing more is taken, since nothing is read either."""
        with trio.move_on_after(_PAUSE * 10):
            await self.play(row)

    async def outcome(self, row: Row) -> str:
        """Return what the row's outcome was, in the words of the table."""
        with trio.move_on_after(_LONGEST) as scope:
            if row.end != "open":
                await self._read(until=None)
            else:
                await self._read(until=len(row.statuses))
                await self.stream.send_all(GET)
                await self._read(until=len(row.statuses) + 1)
        if scope.cancelled_caught:
            return f"{self._statuses()} and nothing more"
        statuses = self._statuses()
        if row.end == "open" and statuses[-1:] == ["200"]:
            return " ".join([*statuses[:-1], "open"])
        return " ".join([*statuses, row.end if row.end == "late" else "closed"])

    def _statuses(self) -> list[str]:
        return [status.decode() for status in _STATUS.findall(self.received)]

    async def _read(self, *, until: int | None) -> None:
        """Read until the server closes, or that many answers have begun."""
        with suppress(trio.BrokenResourceError):
            while until is None or len(self._statuses()) < until:
                data = await self.stream.receive_some()
                if not data:
                    return
                self.received += data


def expected(row: Row) -> str:
    """Return the outcome that the table expects, as `Player.outcome` says it."""
    return " ".join([*map(str, row.statuses), row.end])
