"""Exceptions of foreign code, described safely for models, people and the log.

Rule: nothing here trusts an exception.  Its text may be huge, hold secrets, or raise when it is read.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from itertools import islice

import trio

from hango.codec import cut_text
from hango.redaction import redact

MAX_MESSAGE = 2048  # bytes of a description
_MAX_READ = (
    4 * MAX_MESSAGE
)  # characters read: more than is kept, so that no secret is cut before redaction
MAX_FRAMES = 20  # the innermost, in the log
MAX_LEAVES = 3  # errors of a group that are described


def describe(error: BaseException) -> str:
    """Return type and message of *error*; of a group, of its first errors; bounded, redacted."""
    return cut_text("; ".join(map(_named, flatten(error))), MAX_MESSAGE)


def format_frames(error: BaseException) -> str:
    """Return types and frames, innermost last, without source lines: those may hold content."""
    return "; ".join(map(_located, flatten(error)))


def error_message(error: BaseException) -> str:
    """Return the message of a single *error*, bounded and redacted; may be empty."""
    text = _read(lambda: str(error), "(its message could not be read)")
    return redact(cut_text(text, _MAX_READ)).strip()


def flatten(error: BaseException) -> list[BaseException]:
    """Return the first `leaves` of *error*."""
    return list(islice(leaves(error), MAX_LEAVES))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group in order, nested groups included; *error* itself if it is no group.

    Cancellations are left out; a group of nothing else is yielded itself.
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


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether *error*, raised in this task, is Ctrl-C and not an error of foreign code.

    Under trio's protection Ctrl-C is raised in the main task only; there it cannot be told apart.
    """
    if not any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves(error)):
        return False
    nursery = trio.lowlevel.current_task().parent_nursery
    return nursery is None or nursery.parent_task is trio.lowlevel.current_root_task()


def _named(error: BaseException) -> str:
    name = cut_text(_read(lambda: type(error).__name__, "unnamed error"), 200)
    message = error_message(error)
    return f"{name}: {message}" if message else name


def _located(error: BaseException) -> str:
    frames = [
        f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    kind = _read(lambda: f"{type(error).__module__}.{type(error).__qualname__}", "?")
    return f"{kind} at {' > '.join(frames[-MAX_FRAMES:])}"


def _read(read: Callable[[], str], otherwise: str) -> str:
    """Return what *read* returns, as a plain str; *otherwise* if it raises."""
    try:
        return str.__str__(read())
    except BaseException:  # noqa: BLE001  # foreign code; the description goes on without this text
        return otherwise
