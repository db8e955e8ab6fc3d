"""Hostile texts, and all that reads foreign text."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

from werkzeug.datastructures import Headers

from hango.codec import clean_text, cut_text
from hango.domain.names import check_email, check_name, slug_of
from hango.providers import failures
from hango.providers.demo import find_urls, find_zones
from hango.providers.sse import SseParser
from hango.redaction import redact
from hango.safe_errors import describe
from hango.text import escape_unprintable, join_surrogates, printable
from hango.tools.fetch.body import is_text
from hango.tools.fetch.charsets import find_codec
from hango.tools.fetch.targets import AllowedHosts, Target
from hango.web.server.http1 import refuse_head
from hango.web.wire import read_idempotency_key, read_trace, read_wait
from hango.web.wire.bodies import parse_json, read_id
from hango.web.wire.pages import read_id_cursor, read_seq_cursor

from support.foreign_values import BUILTIN, bound
from support.growth import Parse, on, refusing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

HOSTILE = {
    "plain": ("a",),
    "blanks": (" ",),
    "line ends": ("\n",),
    "returns": ("\r",),
    "NUL": ("\0",),
    "halves": ("\ud800",),
    "backslashes": ("\\",),
    "quotes": ('"',),
    "braces": ("{",),
    "digits": ("1",),
    "dots": (".",),
    "colons": (":",),
    "dashes": ("-",),
    "commas": (", ",),
    "semicolons": (";",),
    "equal signs": ("a=",),
    "equal signs and blanks": ("a= ",),
    "at signs": ("@",),
    "slashes": ("://",),
    "percent": ("%",),
    "wide": ("\U0001f600",),
}
# What the patterns of secrets look for, again and again and never whole
NEARLY_SECRET = {
    "keys that begin": ("-----BEGIN ",),
    "keys that begin in capitals": ("-----BEGIN ", "A ", "PRIVATE KEY"),
    "keys without an end": ("-----BEGIN PRIVATE KEY-----",),
    "user names": ("://a:",),
    "passwords": ("://a:b",),
    "passwords with at signs": ("://a:b@",),
    "headers": ("authorization",),
    "headers with blanks": ("cookie:", " ", ""),
    "headers with line ends": ("set-cookie:\n",),
    "headers and blanks": ("authorization ",),
    "names": ("token",),
    "names with colons": ("token:",),
    "names with quotes": ("token':",),
    "names and blanks": ("secret", " ", ""),
    "names and blanks again": ("passwd    ",),
    "names and line ends": ("api_key =\n",),
    "bearer": ("bearer ",),
    "bearer and blanks": ("bearer", " ", ""),
    "bearer and letters": ("bearer a",),
    "basic": ("basic ",),
    "basic and letters": ("basic ab",),
    "token heads": ("eyJ-",),
    "token heads with dots": ("eyJ.",),
    "token heads, long": ("eyJabcdefgh-",),
    "tokens without a third part": ("eyJabcdefgh.",),
    "key heads": ("sk-",),
    "key heads apart": ("sk- ",),
    "key heads of others": ("xoxb-AKIA-ghp_-",),
    "dashes and words": ("-a",),
}
EVERY = HOSTILE | NEARLY_SECRET


def _headers(name: str, read: Callable[[Headers], object]) -> Callable[[str], object]:
    def parse(text: str) -> object:
        headers = Headers()
        headers._list.append((name, text))  # as the server hands them on, unchecked
        return read(headers)

    return refusing(parse)


def _error(text: str) -> object:
    page = failures.from_body(500, text.encode(errors="replace"))
    named = failures.from_body(400, json.dumps({"error": {"message": text, "code": text}}).encode())
    return [
        failures.to_error(reply, provider="mine", secret=secret)
        for reply in (page, named)
        for secret in ("", "k", "sk-0123456789abcdef")
    ]


def _sse(text: str) -> object:
    parser = SseParser()
    return parser.feed(text.encode(errors="replace")), parser.close()


def _request(text: str) -> object:
    head = b"GET / HTTP/1.1\r\nhost: a\r\n" + text.encode(errors="replace") + b"\r\n\r\n"
    return refuse_head(head)


def _raised(text: str) -> object:
    return describe(ValueError(text)), describe(ExceptionGroup(text, [ValueError(text)] * 3))


TEXTS: dict[str, Callable[[str], object]] = {
    "redact": redact,
    "error messages": _raised,
    "codec": lambda text: (clean_text(text), cut_text(text, 1000), cut_text(text, 10**9)),
    "surrogates": join_surrogates,
    "terminal": lambda text: (printable(text), escape_unprintable(text)),
    "names": lambda text: [refusing(check)(text) for check in (check_email, check_name, slug_of)],
    "sse": _sse,
    "provider errors": _error,
    "retry-after": lambda text: failures.read_retry_after({"retry-after": text}, NOON),
    "URL": refusing(lambda text: Target.parse(f"https://{text}")),
    "URL, path": refusing(lambda text: Target.parse(f"https://example.com/{text}")),
    "redirect": refusing(Target.parse("https://example.com/").join),
    "allowed host": refusing(lambda text: AllowedHosts.parse([text])),
    "content type": lambda text: (is_text(text), find_codec(text)),
    "demo": lambda text: (find_urls(text), find_zones(text)),
    "Prefer": _headers("Prefer", read_wait),
    "Idempotency-Key": _headers("Idempotency-Key", read_idempotency_key),
    "traceparent": _headers("traceparent", read_trace),
    "cursor": refusing(lambda text: read_id_cursor({"cursor": text})),
    "seq cursor": refusing(lambda text: read_seq_cursor({"cursor": text})),
    "id": refusing(read_id),
    "JSON body": refusing(lambda text: parse_json(text.encode(errors="replace"))),
    "JSON text": refusing(lambda text: parse_json(json.dumps({"input": text}).encode())),
    "request head": _request,
    "schema": refusing(lambda text: bound.bind({"text": text})),
    "get_time": refusing(lambda text: BUILTIN["get_time"].bind({"timezone": text})),
    "http_fetch": refusing(lambda text: BUILTIN["http_fetch"].bind({"url": text})),
}


ROWS: dict[str, Parse] = {
    f"{name}: {kind}": on(parse, *parts)
    for name, parse in TEXTS.items()
    for kind, parts in (EVERY if name in ("redact", "provider errors") else HOSTILE).items()
}
