"""An actor: an async function over an inbox, alone with its local variables.

Rule: an actor is reached only by its `Address`, and takes one message at a time.  Its messages are
frozen values; what must not wait in line behind them, an interrupt, is not a message.  Everything in
`hango.actors` is built of this; nothing here knows what a run or a database is.

    async def counter(inbox: Inbox[Add], start: int) -> None:
        total = start
        async for message in inbox:
            total += message.amount

    async with trio.open_nursery() as nursery:
        address = spawn(nursery, counter, 0, name="counter", inbox_size=8)
        address.tell(Add(1))
        address.close()
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar, TypeVarTuple

import attrs
import trio

from hango.errors import ActorStopped, InboxFull

M = TypeVar("M")
Args = TypeVarTuple("Args")

_log = logging.getLogger(__name__)


@attrs.frozen
class Restart:
    """How often an actor that raises is started again.

    Within any `window` seconds it may fail `limit` times; the next failure leaves its nursery.  The
    numbers are Oban's (``max_restarts: 5, max_seconds: 30``), and `delay` keeps a fault that is there
    at once from spending them at once.

    Attributes:
        limit: failures forgiven in a window; 0 forgives none.
        window: seconds, trio clock.
        delay: seconds between a failure and the restart.
    """

    limit: int = 5
    window: float = 30.0
    delay: float = 0.5


NO_RESTART = Restart(limit=0)


@attrs.frozen
class _Work:
    """The part of an actor's work that can be cut short just now."""

    key: Hashable
    scope: trio.CancelScope


@attrs.define(eq=False)
class _Mailbox(Generic[M]):
    """What the two ends of an actor share."""

    send: trio.MemorySendChannel[M]
    receive: trio.MemoryReceiveChannel[M]
    work: _Work | None = None

    def scope_of(self, key: Hashable) -> trio.CancelScope | None:
        return self.work.scope if self.work is not None and self.work.key == key else None

    def close(self) -> None:
        self.send.close()
        self.receive.close()


@attrs.frozen(eq=False)
class Inbox(Generic[M]):
    """The actor's end: iterate over it for the messages, one at a time, in the order of telling.

    The iteration ends when the actor is closed and its queue is empty, or when nothing came for the
    idle time it was spawned with.
    """

    _box: _Mailbox[M]
    _idle: float

    def __aiter__(self) -> Inbox[M]:
        """Return itself: a generator here would need its finalizer awaited, and gets none."""
        return self

    async def __anext__(self) -> M:
        """Wait for the next message.  Cancelled midway it has taken none.

        A queued message is returned even if the task is cancelled, so that what it hands over (a claim)
        can be released cleanly.
        """
        try:
            with suppress(trio.WouldBlock):
                return self._box.receive.receive_nowait()
            with trio.move_on_after(self._idle):
                return await self._box.receive.receive()
            return self._take_or_close()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def _take_or_close(self) -> M:
        """Take what came in the very moment of giving up waiting, or refuse all that follows.

        No checkpoint lies between the look and the close, so a message is taken or refused to its
        sender, never lost.
        """
        try:
            return self._box.receive.receive_nowait()
        except trio.WouldBlock:
            self._box.close()
            raise StopAsyncIteration from None

    @contextmanager
    def interruptible(self, key: Hashable, deadline: float = math.inf) -> Iterator[trio.CancelScope]:
        """Open the scope round work that `Address.interrupt` with *key* may cut short.

        The scope also ends at *deadline* (trio clock, seconds), which `Address.extend` moves.  The key
        is forgotten when the scope closes, so a late interrupt cannot hit what follows; one that came
        too early found nothing, so look at its cause once the scope is open.
        """
        if self._box.work is not None:
            raise RuntimeError("an actor does one interruptible thing at a time")
        with trio.CancelScope(deadline=deadline) as scope:
            self._box.work = _Work(key, scope)
            try:
                yield scope
            finally:
                self._box.work = None


@attrs.frozen(eq=False)
class Address(Generic[M]):
    """Everybody else's end of an actor.  None of its methods blocks.

    Attributes:
        stopped: set once the actor has ended, for whatever reason.
    """

    name: str
    _box: _Mailbox[M]
    stopped: trio.Event = attrs.field(factory=trio.Event)

    def tell(self, message: M) -> None:
        """Put *message* at the end of the inbox.

        Raises:
            InboxFull: the actor is behind by as many messages as its inbox holds.
            ActorStopped: it has ended, or was closed; it will not see the message.
        """
        try:
            self._box.send.send_nowait(message)
        except trio.WouldBlock:
            raise InboxFull(self.name) from None
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            raise ActorStopped(self.name) from None

    def interrupt(self, key: Hashable) -> bool:
        """Cut short the work under *key*, only that; return whether it was going on."""
        scope = self._box.scope_of(key)
        if scope is not None:
            scope.cancel()
        return scope is not None

    def extend(self, key: Hashable, deadline: float) -> None:
        """Move the deadline (trio clock, seconds) of the work under *key*, if it is going on."""
        scope = self._box.scope_of(key)
        if scope is not None:
            scope.deadline = deadline

    def close(self) -> None:
        """Let the actor finish what is in its inbox, and end; it is told nothing more."""
        self._box.send.close()


def spawn(
    nursery: trio.Nursery,
    actor: Callable[[Inbox[M], *Args], Awaitable[None]],
    *args: *Args,
    name: str,
    inbox_size: int,
    restart: Restart = NO_RESTART,
    idle: float = math.inf,
) -> Address[M]:
    """Start *actor* in *nursery* and return its address, which takes messages at once.

    An actor that returns has ended.  One that raises is started again with the same inbox and *args*
    (the message it was at is gone) as often as *restart* allows; then its error leaves the nursery.
    *idle* is how many seconds without a message end its iteration.
    """
    box = _Mailbox(*trio.open_memory_channel[M](inbox_size))
    inbox, address = Inbox(box, idle), Address(name, box)

    async def live() -> None:
        try:
            await restarted(lambda: actor(inbox, *args), name=name, restart=restart)
        finally:
            box.close()
            address.stopped.set()

    nursery.start_soon(live, name=name)
    return address


async def restarted(start: Callable[[], Awaitable[None]], *, name: str, restart: Restart) -> None:
    """Run *start*, again after each failure, as often as *restart* allows; then raise its error."""
    failures: deque[float] = deque()
    while True:
        try:
            return await start()
        except Exception:
            failures.append(trio.current_time())
            while failures[0] < failures[-1] - restart.window:
                failures.popleft()
            if len(failures) > restart.limit:
                raise
            _log.exception("%s failed and starts again", name)
        await trio.sleep(restart.delay)
