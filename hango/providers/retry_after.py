"""How long a provider asked to wait: pure, no clock of its own.

One rule: the answer is a wait that can be slept (a finite number of seconds above 0, at most `CAP`) or
None, upon which the caller backs off in its own way.  A header is a wish of a stranger: an unreadable
one, a past date and "now" are all None, so that no header makes hango hammer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

CAP = 120.0  # seconds; the bound of OpenAI's own client, which gives up beyond it

_NUMBER = re.compile(r"\d+(\.\d*)?", re.ASCII)


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait, or None.

    Args:
        headers: of the answer, by lower-case name; ``retry-after-ms`` wins over ``retry-after``.
        now: wall clock, with its zone; what an HTTP date (RFC 9110 §10.2.3) counts from.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    text = headers.get("retry-after", "")
    seconds = _number(text)
    return _bounded(_until(text, now) if seconds is None else seconds)


def _number(text: str) -> float | None:
    """Read a plain decimal number; no sign, exponent, "nan" or "inf"."""
    return float(text) if _NUMBER.fullmatch(text := text.strip()) else None


def _until(text: str, now: datetime) -> float | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # "-0000" reads as a time of no zone; HTTP knows only GMT
    date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
    return (date - now).total_seconds()


def _bounded(seconds: float | None) -> float | None:
    return min(seconds, CAP) if seconds is not None and seconds > 0 else None
