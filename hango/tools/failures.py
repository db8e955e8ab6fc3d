"""What a failed call tells: the model a type and a bounded message, the log a type and frames."""

from __future__ import annotations

from enum import StrEnum

import attrs

from hango.codec import cut_text
from hango.errors import InvalidInput
from hango.safe_errors import MAX_MESSAGE, describe, error_message, flatten, format_frames


class ErrorKind(StrEnum):
    """Why a call came to an error; the closed set of ``error.type``."""

    UNKNOWN_TOOL = "unknown_tool"
    NOT_ALLOWED = "not_allowed"
    DENIED = "denied"  # by a guardrail
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
        message = _LEAD.get(kind, "") + "; ".join(_said(leaf, kind) for leaf in flatten(error))
        return cls(kind, cut_text(message, MAX_MESSAGE), format_frames(error))


def _said(error: BaseException, kind: ErrorKind) -> str:
    """Return what the model is told of one error: of our own, about its arguments, just the message."""
    if kind is not ErrorKind.EXCEPTION and isinstance(error, InvalidInput):
        return error_message(error) or describe(error)
    return describe(error)
