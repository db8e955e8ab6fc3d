"""Request headers: trace context, idempotency key, preferred wait.

Rule: each follows its own standard.  A preference (`Prefer`, `traceparent`) that makes no sense is
ignored; a key (`Idempotency-Key`) that makes none is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from werkzeug.datastructures import Headers
from werkzeug.http import parse_list_header

from hango.errors import InvalidInput
from hango.web.problem import IDEMPOTENCY_KEY

# seconds; proxies commonly cut a response that is silent for longer
MAX_WAIT = 60

_KEY = re.compile(r"[\x20-\x7e]{1,255}")
# https://www.w3.org/TR/trace-context/#traceparent-header, version 00
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_PREFER = 1000  # characters of all preferences; real ones have a tenth
# a number of more digits is no wait
_SECONDS = re.compile(r'("?)([0-9]{1,18})\1')


def read_idempotency_key(headers: Headers) -> str | None:
    """Return the idempotency key; None when the request has none.

    Raises:
        InvalidInput: it is not one text of 1 to 255 printable ASCII characters.
    """
    values = headers.getlist(IDEMPOTENCY_KEY)
    if not values:
        return None
    if len(values) > 1 or _KEY.fullmatch(values[0]) is None:
        raise InvalidInput(
            "must be sent once, and be 1 to 255 printable ASCII characters", field=IDEMPOTENCY_KEY
        )
    return values[0]


def read_wait(headers: Headers) -> int | None:
    """Return how long the client prefers to wait (seconds, at most `MAX_WAIT`), or None.

    The first of several counts (RFC 7240 §2); an invalid or very long one is ignored.
    """
    for name, value in _preferences(headers.getlist("Prefer")):
        if name == "wait":
            seconds = _SECONDS.fullmatch(value)
            return min(int(seconds[2]), MAX_WAIT) if seconds else None
    return None


def _preferences(values: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield names, in lower case, and values (https://www.rfc-editor.org/rfc/rfc7240#section-2)."""
    text = ", ".join(values)
    if len(text) > _MAX_PREFER:
        return
    for item in parse_list_header(text):
        preference, _, _ = item.partition(";")
        name, _, value = preference.partition("=")
        yield name.strip().lower(), value.strip()


def read_trace(headers: Headers) -> str | None:
    """Return the caller's trace context, if it sent a valid one; the run links to it."""
    text = headers.get("traceparent", "")
    return text if _TRACEPARENT.fullmatch(text) else None
