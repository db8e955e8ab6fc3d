"""What was raised by code that is not ours, told safely: to a model or a person, and to the log.

Rule: nothing here trusts an exception.  Its text may be huge, hold secrets, or raise when asked for.
Used wherever functions of others are called: tools, guardrails, completion gates.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from itertools import islice

import trio

from hango.codec import cut_text
from hango.redaction import redact

MAX_MESSAGE = 2048  # bytes told of an error
_MAX_READ = 4 * MAX_MESSAGE  # characters looked at, so that a secret cut at the end is cut off later
MAX_FRAMES = 20  # innermost, logged
MAX_LEAVES = 3  # errors told of a group


def describe(error: BaseException) -> str:
    """Return type and message of *error*; of a group, of its first errors; bounded, redacted."""
    return cut_text("; ".join(map(_named, flatten(error))), MAX_MESSAGE)


def format_frames(error: BaseException) -> str:
    """Return types and frames, innermost last, without source lines: those may hold content."""
    return "; ".join(map(_located, flatten(error)))


def error_message(error: BaseException) -> str:
    """Return what a single *error* says, bounded and redacted; may be empty."""
    text = _read(lambda: str(error), "(its message could not be read)")
    return redact(cut_text(text, _MAX_READ)).strip()


def flatten(error: BaseException) -> list[BaseException]:
    """Return the first errors of a group, nested ones too, in their order; one that is none itself."""
    return list(islice(_leaves(error), MAX_LEAVES))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group.

    Cancellations in it are not errors of who raised it; a group of nothing else is its own leaf.
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
    """Return what *read* finds, as a plain text; *otherwise* when it finds trouble."""
    try:
        return str.__str__(read())
    except BaseException:  # noqa: BLE001  # whatever it raises: the call goes on, without this text
        return otherwise
