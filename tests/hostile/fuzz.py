"""Random requests, the same for the same seed.

The routes are those that the server itself lists; ids, queries, headers and bodies are sound ones,
changed a little, or nonsense.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from urllib.parse import quote
from uuid import UUID

import attrs
from hostile.json_bodies import REFUSED, TAKEN

_KEPT_IDS = 300
_LARGEST = 20_000  # bytes of the bodies taken from the table: the rest has a test of its own

_METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW", "get", "TRACE")
_SEGMENTS = (
    "v1",
    "runs",
    "sessions",
    "agents",
    "users",
    "keys",
    "messages",
    "cancel",
    "me",
    "..",
    ".",
    "",
)
_WORDS = (
    "",
    "x",
    "\0",
    "\r\nX-Evil: 1",
    "a" * 3000,
    "🌍",
    "%00",
    "%ff",
    "%",
    "-1",
    "0",
    "1",
    "50",
    "201",
    "1e9",
    "null",
    "queued",
    "running",
    "succeeded",
    "owner",
    "member",
    "disabled",
    "demo",
    "fake",
    "get_time",
    "../../etc/passwd",
    "' or 1=1 --",
    "{{7*7}}",
    "AAAAAAAAAAA",
    "AZ2cKk9OcACAAAAAAAAAAA",
)
_QUERIES = ("limit", "cursor", "state", "wait", "before", "after", "Limit", "")
_KEYS = (
    "input",
    "role",
    "content",
    "agent_id",
    "title",
    "slug",
    "name",
    "provider",
    "model",
    "system_prompt",
    "tools",
    "guardrails",
    "completion",
    "limits",
    "max_iterations",
    "tool_timeout",
    "email",
    "status",
    "type",
    "text",
    "id",
    "\0",
    "",
)
_HEADERS = (
    *(b"Idempotency-Key: k%d" % n for n in range(5)),
    b"Idempotency-Key: \xff\xfe",
    b"Idempotency-Key: " + b"k" * 5000,
    b"Idempotency-Key: a\r\nIdempotency-Key: b",
    b"Prefer: wait=0",
    b"Prefer: wait=-1",
    b"Prefer: wait=x, respond-async",
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"traceparent: 00-x",
    b"Accept: text/html;q=0.1, */*;q=banana",
    b"Accept-Encoding: gzip, br;q=x",
    b"Content-Encoding: gzip",
    b"Cookie: session=\xff; a=b",
    b"If-None-Match: *",
    b"Range: bytes=5-1",
    b"X-Forwarded-For: ::1, unknown",
    b"X: a\x01b",
    b"X: \xff",
    b": nothing",
    b"Connection: close",
    b"Connection: upgrade\r\nUpgrade: h3",
    b"Expect: 100-continue",
)
_TYPES = (b"application/json",) * 8 + (b"text/plain", b"application/json; charset=utf-16", b"\xff", b"")


@attrs.frozen
class Request:
    """One request as it goes over the wire.

    Attributes:
        makes: the kind of id that its answer may tell.
    """

    method: str
    data: bytes
    makes: str


@attrs.define
class Requests:
    """Makes requests at random.

    Attributes:
        operations: (method, path with names in braces) of every route.
        keys: API keys to act with.
        ids: known ids, by the name that paths have for their kind; those that answers tell are added.
    """

    chance: random.Random
    operations: Sequence[tuple[str, str]]
    keys: Sequence[str]
    ids: dict[str, list[str]]

    def make(self) -> Request:
        """Make the next one."""
        method, template = self.chance.choice(self.operations)
        if self._sometimes(0.1):
            method = self.chance.choice(_METHODS)
        target = self._path(template).encode("utf-8", "surrogatepass") + self._query()
        body = (
            self._body(template)
            if self._sometimes(0.9 if method in {"POST", "PATCH"} else 0.1)
            else b""
        )
        lines = [b"%s %s HTTP/1.1" % (method.encode(), target), b"Host: hango", *self._headers()]
        data = b"\r\n".join([*lines, *self._framed(body)])
        return Request(method, data, template.rpartition("/")[2].removesuffix("s") + "_id")

    def learn(self, kind: str, body: bytes) -> None:
        """Remember the id that an answer tells."""
        told = json.loads(body).get("id")
        if isinstance(told, str) and kind in self.ids:
            known = self.ids[kind]
            known.insert(self.chance.randrange(len(known) + 1), told)
            del known[_KEPT_IDS:]

    def _sometimes(self, share: float) -> bool:
        return self.chance.random() < share

    def _any_id(self) -> str:
        return self.chance.choice(self.ids[self.chance.choice(list(self.ids))])

    # --- the line ---------------------------------------------------------------------------

    def _path(self, template: str) -> str:
        parts = [
            self._id(part.strip("{}")) if part.startswith("{") else part for part in template.split("/")
        ]
        if self._sometimes(0.05):
            parts.insert(self.chance.randrange(1, len(parts) + 1), self.chance.choice(_SEGMENTS))
        if self._sometimes(0.05):
            parts[self.chance.randrange(1, len(parts))] = quote(self.chance.choice(_WORDS), safe="")
        return "/".join(parts)

    def _id(self, kind: str) -> str:
        if self._sometimes(0.8):
            return self.chance.choice(self.ids.get(kind) or [self._any_id()])
        if self._sometimes(0.3):
            return self._any_id()
        if self._sometimes(0.5):
            return str(UUID(int=self.chance.getrandbits(128)))
        if self._sometimes(0.5):
            return quote(self.chance.choice(_WORDS), safe="")
        known = list(self._any_id())
        known[self.chance.randrange(len(known))] = self.chance.choice("0fFg-%")
        return "".join(known)

    def _query(self) -> bytes:
        if not self._sometimes(0.3):
            return b""
        pairs = [
            f"{self.chance.choice(_QUERIES)}={quote(self.chance.choice(_WORDS))}"
            for _ in range(self.chance.randint(1, 3))
        ]
        return b"?" + "&".join(pairs).encode()

    def _headers(self) -> list[bytes]:
        headers = [self.chance.choice(_HEADERS)] if self._sometimes(0.2) else []
        if self._sometimes(0.98):
            key = self.chance.choice(self.keys) if self._sometimes(0.98) else "hgo_" + "x" * 43
            headers.append(b"Authorization: Bearer " + key.encode())
        return headers

    # --- the body ---------------------------------------------------------------------------

    def _framed(self, body: bytes) -> list[bytes]:
        """Return the last lines of a request: how its body is sent, and the body."""
        if not body:
            return [b"", b""]
        kind = b"Content-Type: " + self.chance.choice(_TYPES)
        if self._sometimes(0.1):
            chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            return [kind, b"Transfer-Encoding: chunked", b"", chunked]
        return [kind, b"Content-Length: %d" % len(body), b"", body]

    def _body(self, template: str) -> bytes:
        kind = self.chance.random()
        if kind < 0.15:
            return self.chance.choice(_ODD_BODIES)
        if kind < 0.25:
            return self.chance.randbytes(self.chance.randint(1, 300))
        value = self._sound(template) if self._sometimes(0.8) else self._object(3)
        body = json.dumps(value, ensure_ascii=self._sometimes(0.5)).encode("utf-8", "surrogatepass")
        return self._spoiled(body) if self._sometimes(0.3) else body

    def _sound(self, template: str) -> dict[str, object]:
        """Return what the route takes, with one member changed now and then."""
        word = f"w{self.chance.getrandbits(40):x}"
        sound: Mapping[str, dict[str, object]] = {
            "runs": {"input": f"What time is it, {word}?"},
            "messages": {"role": "user", "content": [{"type": "text", "text": word}]},
            "sessions": {"agent_id": self._id("agent_id"), "title": word},
            "agents": {"slug": word, "provider": "demo", "model": "demo"},
            "users": {"email": f"{word}@fuzz.test", "role": "member"},
        }
        body = dict(sound.get(template.rpartition("/")[2], {"name": word}))
        if self._sometimes(0.3):
            body[self.chance.choice([*body, *_KEYS])] = self._value(2)
        return body

    def _object(self, depth: int) -> dict[str, object]:
        return {self.chance.choice(_KEYS): self._value(depth) for _ in range(self.chance.randint(0, 4))}

    def _value(self, depth: int) -> object:
        kind = self.chance.randrange(8 if depth else 6)
        match kind:
            case 0:
                return self.chance.choice([None, True, False, [], {}])
            case 1:
                return self.chance.choice([0, -1, 1, 2**31, 2**63, 2**64, 10**30, 1.5, -0.0, 1e308])
            case 2:
                return self._any_id()
            case 6:
                return [self._value(depth - 1) for _ in range(self.chance.randint(1, 3))]
            case 7:
                return self._object(depth - 1)
            case _:
                return self.chance.choice(_WORDS)

    def _spoiled(self, body: bytes) -> bytes:
        place = self.chance.randrange(len(body))
        match self.chance.randrange(4):
            case 0:
                return body[:place]
            case 1:
                return body[:place] + self.chance.randbytes(1) + body[place + 1 :]
            case 2:
                return body[:place] + body[place:] * 2
            case _:
                return body[:place] + self.chance.choice(
                    [b"\0", b"\\u0000", b'"', b"{", b"\xed\xa0\x80"]
                )


_ODD_BODIES = [body for body, _ in [*TAKEN.values(), *REFUSED.values()] if 0 < len(body) < _LARGEST]
