"""Error answers of providers: what they mean, and whether to try again.  Pure.

Rule: an error has the provider's own code and message, bounded, and never a key.  Error bodies come
from servers, gateways and proxies in front of each other, so nothing is assumed about their shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import attrs

from hango.codec import cut_text
from hango.errors import ContextExceeded, ProviderError, UnsupportedStop
from hango.redaction import redact

MAX_MESSAGE = 600  # bytes of the provider's own message, which is stored on the run
_MAX_READ = 4 * MAX_MESSAGE  # characters looked at, so that a key cut at the end is cut off later
_LONG_KEY = 16  # characters from which no word of a message is a key by accident
_PART = 8  # characters that servers show of a wrong key at least, from its beginning
MAX_RETRY_AFTER = 120.0  # seconds; the bound of OpenAI's own client, which gives up beyond it

_RETRYABLE = frozenset(  # beside every 5xx, 529 ("overloaded") among them
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)
_RETRYABLE_NAMES = re.compile(
    r"overloaded|rate_?limit|too_many_requests|timeout|unavailable|resource_exhausted"
    r"|(server|api|internal)_error|capacity|insufficient_system_resource",
    re.IGNORECASE,
)
# Sent as 429, but waiting does not help: https://platform.openai.com/docs/guides/error-codes
_FINAL_NAMES = re.compile(r"insufficient_quota|billing", re.IGNORECASE)
# A conversation that does not fit.  Few servers send a code, most only a sentence of their own.
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|max_model_len|string_above_max_length"
    r"|(maximum|model'?s) (context|prompt|input) (length|size|window)"  # OpenAI, vLLM, SGLang, xAI
    r"|context (window|limit|size|length)"  # Anthropic, llama.cpp, LM Studio, MiniMax
    # Anthropic, Bedrock
    r"|(prompt|input|conversation|request|history|messages?) (is|are) too (long|large)"
    r"|exceed\w* (the )?(max|maximum|model|model's) ?((number of|input|prompt|context) )?(token|length)"
    r"|too many (input )?tokens"  # Gemini, Kimi, GLM; Cohere, Bedrock
    r"|(token count|number of tokens) [^.]{0,80}exceed"
    r"|`inputs` (tokens|must)|range of input length"  # TGI, Together; Qwen
    r"|larger than the maximum (token|input|context)|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE,
)
# Limits of a rate are told in the same words
_RATE = re.compile(r"per (minute|second|hour|day)|rate.?limit|\b[rt]p[md]\b|quota", re.IGNORECASE)
_MASKED = re.compile(r"[\d*…]")
# Groq: https://console.groq.com/docs/tool-use (Error Handling)
_REJECTED_CALLS = frozenset({"tool_use_failed"})
_NUMBER = re.compile(r"\d+(\.\d*)?", re.ASCII)


class CallRejected(ProviderError):
    """The server could not parse a tool call of the model, which may correct it.

    Attributes:
        generation: what the model wrote, may be empty.
    """

    generation: str = ""


@attrs.frozen
class ErrorReply:
    """An error answer as far as it could be read.

    Attributes:
        message: the provider's own text, may be empty.
        code: its short name for the error, may be empty.
        status: the HTTP status it has or stands for; 0 when unknown.
        generation: what the model had written, where that is the error; may be empty.
    """

    message: str
    code: str = ""
    status: int = 0
    generation: str = ""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        if _FINAL_NAMES.search(self.code):
            return False
        if self.status:
            return self.status in _RETRYABLE or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return bool(_RETRYABLE_NAMES.search(self.code))

    @property
    def too_long(self) -> bool:
        """Whether the conversation does not fit the model's context window."""
        if self.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return True
        text = f"{self.code} {self.message[:_MAX_READ]}"
        if self.status == HTTPStatus.TOO_MANY_REQUESTS or _RATE.search(text):
            return False
        return _TOO_LONG.search(text) is not None


def in_band(value: Mapping[str, object]) -> ErrorReply | None:
    """Return the error that an event of a stream contains, None if it contains none.

    Seen: ``{"error": {...}}`` beside choices or alone, ``{"error": "text"}``, and vLLM's bare
    ``{"object": "error", "message": ...}``.
    """
    if value.get("error") or value.get("object") == "error":
        return _from_json(value, 0)
    return None


def from_body(status: int, body: bytes) -> ErrorReply:
    """Read the body of an error answer: JSON of any shape, HTML, text or nothing.

    Args:
        status: HTTP status, 0 for an error that came inside a stream.
        body: bounded.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ErrorReply(_plain(body.decode(errors="replace")), "", status)
    if isinstance(value, list) and value:  # Google's gateways wrap it in a list
        value = value[0]
    return (
        _from_json(value, status)
        if isinstance(value, dict)
        else ErrorReply(_written(value), "", status)
    )


def to_error(
    failure: ErrorReply,
    *,
    provider: str,
    secret: str = "",
    key_name: str = "",
    should_retry: str = "",
    retry_after: float | None = None,
) -> ProviderError:
    """Make the error to raise.

    Args:
        failure: what was read.
        provider: name of the provider, for people.
        secret: the key; servers repeat it in their errors, so it is taken out.
        key_name: what people know the key as, such as the variable that holds it; empty for no hint.
        should_retry: the ``x-should-retry`` header; "true" or "false" overrules all else.
        retry_after: seconds, already bounded.
    """
    said = cut_text(hide_key(failure.message[:_MAX_READ], secret), MAX_MESSAGE)
    code = hide_key(failure.code, secret) or (
        str(failure.status) if failure.status else "provider_error"
    )
    where = f"{provider} answered {failure.status}" if failure.status else f"{provider} failed"
    label = f"{where} ({code})" if code != str(failure.status) else where
    message = f"{label}: {said}" if said else label
    if failure.status == HTTPStatus.UNAUTHORIZED and key_name:
        message += f" (check {key_name})" if secret else f" (no key is set; see {key_name})"
    if failure.too_long:
        return ContextExceeded(message, code=code)
    if failure.code in _REJECTED_CALLS:
        error = CallRejected(message, code=code)
        error.generation = failure.generation
        return error
    retryable = {"true": True, "false": False}.get(should_retry.strip().lower(), failure.retryable)
    return ProviderError(message, code=code, retryable=retryable, retry_after=retry_after)


def unsendable(provider: str, error: Exception) -> ProviderError:
    """Return the error of a request that cannot be written."""
    return ProviderError(f"{provider} cannot be asked: {error}", code="invalid_request")


def _from_json(value: Mapping[str, object], status: int) -> ErrorReply:
    """Read an error object: the value of its "error", or itself."""
    error = value.get("error") or value
    if not isinstance(error, Mapping):
        return ErrorReply(_written(error), "", status)
    codes = [error.get(key) for key in ("code", "type", "status")]
    numbers = [code for item in (*codes, error.get("status_code")) if (code := _status(item))]
    names = [item for item in codes if isinstance(item, str) and not _status(item)]
    said = next((text for key in ("message", "detail") if (text := error.get(key))), "")
    return ErrorReply(
        _written(said),
        next(filter(None, map(plain_name, names)), ""),
        status or max(numbers, default=0),
        _written(error.get("failed_generation", "")),
    )


def _written(value: object) -> str:
    """Return *value* as text, where a message was expected; a text is itself."""
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        return ""


def _status(value: object) -> int:
    """Return *value* as the HTTP status of an error, 0 if it is not one."""
    text = str(value)
    return int(text) if re.fullmatch(r"[45]\d\d", text, re.ASCII) else 0


def plain_name(text: str) -> str:
    """Return a provider's error name as a metric label; empty for "error", which says nothing."""
    name = re.sub(r"[^\w.-]+", "_", text, flags=re.ASCII).strip("_")[:64]
    return "" if name == "error" else name


def unknown_stop(provider: str, label: str) -> UnsupportedStop:
    """Return the error for an answer that ended for an unknown reason."""
    name = plain_name(label) or "unknown"
    return UnsupportedStop(f"{provider} stopped for a reason hango does not know: {name}", code=name)


def _plain(text: str) -> str:
    """Return a body that is not JSON as one line; of an HTML page, its title."""
    if text.lstrip().startswith("<"):
        title = _title(text)
        text = f"an HTML page: {title}" if title else "an HTML page"
    return " ".join(text.split())


def _title(page: str) -> str:
    _, _, rest = page.partition("<title") if "<title" in page else page.partition("<TITLE")
    return rest.partition(">")[2].partition("</")[0]


def hide_key(text: str, key: str) -> str:
    """Return *text* without *key* and what else looks like a credential.

    A short key is replaced only as a whole word: local servers are given keys such as "k" or "ollama".
    Of a long key its beginning is replaced as well, as servers show it: with digits, or masked.
    """
    if 0 < len(key) < _LONG_KEY:
        text = re.sub(rf"(?<![\w-]){re.escape(key)}(?![\w-])", "[key]", text)
    elif key:
        text = text.replace(key, "[key]")
        shown = rf"(?<![\w-]){re.escape(key[:_PART])}[\w*…+/=.~-]*"
        text = re.sub(shown, lambda m: "[key]" if _MASKED.search(m[0]) else m[0], text)
    return redact(text)


# --- how long the provider asked to wait ----------------------------------------------------


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait: above 0, at most `MAX_RETRY_AFTER`; None when no wait was named.

    A header that cannot be read, a date in the past and "now" name no wait: the caller then backs off
    in its own way, so no header makes hango hammer a server.

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
    return min(seconds, MAX_RETRY_AFTER) if seconds is not None and seconds > 0 else None
