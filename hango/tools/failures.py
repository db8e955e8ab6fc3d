"""Failed tool calls: the message for the model, the cause for the log."""

from __future__ import annotations

from enum import StrEnum

import attrs

from hango.codec import cut_text
from hango.errors import InvalidInput
from hango.safe_errors import MAX_MESSAGE, describe, error_message, flatten, format_frames


class ErrorKind(StrEnum):
    """Why a call failed; the closed set of ``error.type``."""

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


_PREFIX = {
    ErrorKind.INVALID_ARGUMENTS: "the arguments do not fit, so the tool did not run: ",
    ErrorKind.INVALID_RESULT: "the tool ran, but what it returned cannot be used: ",
}


@attrs.frozen
class CallFailure:
    """A call that failed.

    Attributes:
        message: for the model; bounded, without secrets, never empty.
        cause: type and stack frames, for the log; empty when nothing was raised.
    """

    kind: ErrorKind
    message: str
    cause: str = ""

    @classmethod
    def of(cls, kind: ErrorKind, error: BaseException) -> CallFailure:
        """Make the failure of a call that raised *error*; a group is described by its first errors."""
        message = _PREFIX.get(kind, "") + "; ".join(_text(leaf, kind) for leaf in flatten(error))
        return cls(kind, cut_text(message, MAX_MESSAGE), format_frames(error))


def _text(error: BaseException, kind: ErrorKind) -> str:
    """Return the model's text for one error; hango's own, about arguments, need no type."""
    if kind is not ErrorKind.EXCEPTION and isinstance(error, InvalidInput):
        return error_message(error) or describe(error)
    return describe(error)
