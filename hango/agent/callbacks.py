"""Asks a function of the agent's author: a guardrail or a verifier, sync or async.

Rule: whatever it does, the caller gets an answer or what was raised, and the loop is not blocked
meanwhile; only cancellation gets out.  Used by guardrails and completion gates.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

import attrs
import trio

from hango.threads import Threads, is_async

T = TypeVar("T")


@attrs.frozen
class Raised:
    """What a function raised in the place of an answer."""

    error: BaseException


# Like a tool, a function that raises KeyboardInterrupt is one that failed; Ctrl-C is not.
@trio.lowlevel.enable_ki_protection
async def call_user_function(function: Callable[[T], object], about: T, threads: Threads) -> object:
    """Return what *function* answers, awaited where need be, or `Raised`.

    A sync function runs in one of *threads*.  Cancelled midway, nothing comes back, whatever the
    function makes of it; a sync one goes on in its thread, and its answer is dropped.
    """
    try:
        answer: object = await _answer(function, about, threads)
    except BaseException as error:  # noqa: BLE001  # the border to foreign code; a cancel is raised anew
        answer = Raised(error)
    await trio.lowlevel.checkpoint_if_cancelled()
    return answer


async def _answer(function: Callable[[T], object], about: T, threads: Threads) -> object:
    if is_async(function):
        answer = function(about)
    elif threads.exhausted:
        raise RuntimeError("it was not called: too many earlier calls have not returned yet")
    else:
        answer = await threads.run(partial(function, about))
    answer = await answer if inspect.isawaitable(answer) else answer
    if inspect.iscoroutine(answer):
        answer.close()  # or Python warns that nobody awaited it
    return answer


def exact_str(value: object) -> str | None:
    """Return the text that *value* is; None when it is none, whatever it says of itself.

    An answer is foreign, too: `isinstance` believes its class, and its methods may be others.
    """
    return str.__str__(cast("str", value)) if issubclass(type(value), str) else None
