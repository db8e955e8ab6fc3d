"""Logging: the format of lines, and the fields that say which run they belong to.

Rule: lines never have content of runs: no messages of exceptions, no secrets.  They go to standard
error, so that standard output has only answers.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Literal
from uuid import UUID

from opentelemetry import trace

from hango.codec import clean_text
from hango.redaction import redact
from hango.telemetry import names
from hango.telemetry.line_writer import LineWriter
from hango.text import escape_unprintable

# Libraries that log every connection and request at INFO.
_CHATTY = ("asyncio", "asyncpg", "httpcore", "httpx", "hypercorn", "quart", "trio_asyncio")

_MAX_TRACE = 200  # lines of one exception with those that came before

_bound: ContextVar[Mapping[str, object]] = ContextVar("hango.log", default=MappingProxyType({}))


@contextmanager
def bind(
    *,
    tenant_id: UUID | None = None,
    agent_id: UUID | None = None,
    session_id: UUID | None = None,
    run_id: UUID | None = None,
    turn: int | None = None,
    trace_id: str | None = None,
    span_id: str | None = None,
) -> Iterator[None]:
    """Add these fields to each line logged inside the context, also by tasks and threads started in it.

    Contexts nest: an inner one adds fields, or replaces their values.
    """
    fields = {
        names.TENANT_ID: tenant_id,
        names.AGENT_ID: agent_id,
        names.SESSION_ID: session_id,
        names.RUN_ID: run_id,
        names.TURN: turn,
        "trace_id": trace_id,
        "span_id": span_id,
    }
    token = _bound.set(
        {**_bound.get(), **{key: value for key, value in fields.items() if value is not None}}
    )
    try:
        yield
    finally:
        _bound.reset(token)


def set_up(*, style: Literal["text", "json"], level: str) -> None:
    """Send the log of this process to standard error, without ever waiting for its reader.

    Replaces what was set up before.

    Args:
        style: lines for people, or one JSON object a line.
        level: the least severe that is written: debug, info, warning or error.
    """
    handler = _handler()
    handler.setFormatter(TextLines() if style == "text" else JsonLines())
    threshold = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(handlers=[handler], level=threshold, force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))


def flush() -> None:
    """Wait until the lines logged so far are written, for a bounded time."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def _handler() -> logging.Handler:
    try:
        return LineWriter(sys.stderr.fileno())
    except OSError:  # replaced by an object in memory, which nothing has to read
        return logging.StreamHandler(sys.stderr)


class TextLines(logging.Formatter):
    """One line for people, and below it the frames of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Format *record*; its message cannot forge a line, nor anything that a terminal obeys."""
        when, message = _time(record), record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        fields = "".join(f" {key}={value}" for key, value in _fields().items())
        line = f"{when} {record.levelname:<7} {record.name}: {message}{fields}"
        lines = [redact(clean_text(text)) for text in (line, *_frames(record))]
        return "\n".join(map(escape_unprintable, lines))


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format *record*; the frames of an exception are a list."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(clean_text(record.getMessage())),
            **_fields(),
            **_extra(record),
        }
        if frames := _frames(record):
            line["exception"] = [redact(clean_text(frame)) for frame in frames]
        return escape_unprintable(json.dumps(line, ensure_ascii=False, default=str))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields() -> Mapping[str, object]:
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return _bound.get()
    traced = {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    return {**_bound.get(), **traced}


def _extra(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the line's own fields, given as ``extra``: by the dot in their names."""
    return {
        name: redact(clean_text(value)) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if "." in name
    }


def _frames(record: logging.LogRecord) -> list[str]:
    error = record.exc_info[1] if record.exc_info else None
    return list(islice(_trace(error), _MAX_TRACE)) if error else []


# Reads the name of a class even if its metaclass raises.
_QUALNAME = type.__dict__["__qualname__"]


def _trace(error: BaseException) -> Iterator[str]:
    """Yield type and frames of *error*, of the errors in its group, and of the cause of each.

    Messages are left out, since they may have content.  Not recursive: chains may have any length.
    """
    seen: set[int] = set()
    waiting = [(error, "  ", False)]
    while waiting:
        inner, indent, is_earlier = waiting.pop()
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        if is_earlier:
            yield f"{indent}after"
        yield indent + _QUALNAME.__get__(type(inner))
        for frame, number in traceback.walk_tb(inner.__traceback__):
            code = frame.f_code
            yield f"{indent}  at {code.co_filename}:{number} in {code.co_qualname}"
        earlier = inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)
        if earlier is not None:
            waiting.append((earlier, indent, True))
        if isinstance(inner, BaseExceptionGroup):
            waiting += [(one, indent + "    ", False) for one in reversed(inner.exceptions)]
