"""What a failed call tells: the model a type and a bounded message, the log a type and frames.

Rule: nothing here trusts an exception.  Its text may be huge, hold secrets, or raise when asked for.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import islice

import attrs
import trio

from hango.codec import cut_text
from hango.errors import InvalidInput
from hango.telemetry.redaction import redact

MAX_MESSAGE = 2048  # bytes a model is told of an error
_MAX_READ = 4 * MAX_MESSAGE  # characters looked at, so that a secret cut at the end is cut off later
MAX_FRAMES = 20  # innermost, logged
MAX_LEAVES = 3  # errors told of a group


class ErrorKind(StrEnum):
    """Why a call came to an error; the closed set of ``error.type``."""

    UNKNOWN_TOOL = "unknown_tool"
    NOT_ALLOWED = "not_allowed"
    INVALID_ARGUMENTS = "invalid_arguments"
    TIMEOUT = "timeout"
    STUCK_THREADS = "stuck_threads"
    INTERRUPTED = "interrupted"  # started by an earlier execution, which left no result
    EXCEPTION = "exception"
    INVALID_RESULT = "invalid_result"
    TOOL_ERROR = "tool_error"  # the tool itself returned an error result


_LEAD = {
    ErrorKind.INVALID_ARGUMENTS: "the arguments do not fit, so the tool did not run: ",
    ErrorKind.INVALID_RESULT: "the tool ran, but what it returned cannot be used: ",
}


@attrs.frozen
class Failure:
    """A call that came to an error.

    Attributes:
        message: for the model; bounded, without secrets, never empty.
        cause: type and frames, for the log; empty when nothing was raised.
    """

    kind: ErrorKind
    message: str
    cause: str = ""

    @classmethod
    def of(cls, kind: ErrorKind, error: BaseException) -> Failure:
        """Describe what was raised; of a group, its first errors."""
        leaves = list(islice(_leaves(error), MAX_LEAVES))
        message = _LEAD.get(kind, "") + "; ".join(_told(leaf, kind) for leaf in leaves)
        return cls(kind, cut_text(message, MAX_MESSAGE), "; ".join(map(_located, leaves)))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, nested ones too, in their order.

    Cancellations in it are not errors of the tool; a group of nothing else is its own leaf.
    """
    waiting, empty = [error], True
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, BaseExceptionGroup):
            waiting += reversed(inner.exceptions)
        elif not isinstance(inner, trio.Cancelled):
            empty = False
            yield inner
    if empty:
        yield error


def _told(error: BaseException, kind: ErrorKind) -> str:
    name = cut_text(_read(lambda: type(error).__name__, "an error without a name"), 200)
    text = _read(lambda: str(error), "(its message cannot be read)")
    message = redact(cut_text(text, _MAX_READ)).strip()
    if message and kind is not ErrorKind.EXCEPTION and isinstance(error, InvalidInput):
        return message
    return f"{name}: {message}" if message else name


def _located(error: BaseException) -> str:
    """Return type and frames, innermost last, without source lines: those may hold content."""
    frames = [
        f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    kind = _read(lambda: f"{type(error).__module__}.{type(error).__qualname__}", "?")
    return f"{kind} at {' > '.join(frames[-MAX_FRAMES:])}"


def _read(read: Callable[[], str], otherwise: str) -> str:
    """Return what *read* finds, as a plain text; *otherwise* when it finds trouble."""
    try:
        return str.__str__(read())
    except BaseException:  # noqa: BLE001  # whatever it raises: the call goes on, without this text
        return otherwise
