"""Calls to functions of the agent's author: guardrails and verifiers, sync or async.

Rule: whatever the function does, the caller gets its return value or what it raised, and the event loop
is not blocked.  Only cancellation is raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar, cast

import attrs
import trio

from hango.domain import Scope
from hango.safe_errors import is_ctrl_c
from hango.threads import Owner, Threads, is_async

T = TypeVar("T")


@attrs.frozen
class CallbackThreads:
    """Where sync callbacks run; kept apart from each other and from tools.

    Attributes:
        guardrails: not delayed by verifiers, which are often slow.
        verifiers: of completion gates.
    """

    guardrails: Threads = attrs.field(factory=Threads)
    verifiers: Threads = attrs.field(factory=Threads)


@attrs.frozen
class TenantThreads:
    """Threads, as the callbacks of one tenant's run use them."""

    threads: Threads = attrs.field(factory=Threads)
    tenant: Hashable = None

    @classmethod
    def of(cls, threads: Threads, scope: Scope | None) -> TenantThreads:
        """Return *threads* for the tenant of *scope*."""
        return cls(threads, scope.tenant_id if scope else None)

    async def run(self, function: Callable[[], object], name: str) -> object:
        """Wait for a thread, within the run's deadline, and run *function*, called *name*, in it."""
        return await self.threads.run(function, Owner(self.tenant, name))


@attrs.frozen
class Raised:
    """What a function raised instead of returning."""

    error: BaseException


# A function that raises KeyboardInterrupt is one that failed; Ctrl-C is not.
@trio.lowlevel.enable_ki_protection
async def call_user_function(
    function: Callable[[T], object], about: T, threads: TenantThreads
) -> object:
    """Return what *function* returns for *about*, awaited where necessary, or `Raised`.

    A sync function runs in one of *threads*, when one is free: waiting for that is never an answer.
    Cancelled midway, nothing is returned, even if the
    function swallows the cancellation; a sync one goes on in its thread, and its result is dropped.
    """
    try:
        answer: object = await _answer(function, about, threads)
    except BaseException as error:  # the border to foreign code; a cancel is raised anew
        if is_ctrl_c(error):
            raise
        answer = Raised(error)
    await trio.lowlevel.checkpoint_if_cancelled()
    return answer


async def _answer(function: Callable[[T], object], about: T, threads: TenantThreads) -> object:
    if is_async(function):
        answer = function(about)
    else:
        answer = await threads.run(partial(function, about), name_of(function))
    answer = await answer if inspect.isawaitable(answer) else answer
    if inspect.iscoroutine(answer):
        answer.close()  # or Python warns that it was never awaited
    return answer


def name_of(function: object) -> str:
    """Return a name for the log; attributes of objects are not read, their code could do anything."""
    kind = type(function).__qualname__
    return str(getattr(function, "__qualname__", kind)) if inspect.isroutine(function) else kind


def exact_str(value: object) -> str | None:
    """Return *value* as a plain str if its real type is str or a subclass, else None.

    `isinstance` is not used, and no method of the value is called: user classes can lie to both.
    """
    return str.__str__(cast("str", value)) if issubclass(type(value), str) else None
