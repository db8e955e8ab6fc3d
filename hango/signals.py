"""The signals of a process: which drain it, which are ignored, and what a second one does.

`docs/howto/operate.md` lists them.  Signals of faults (SIGSEGV and others) keep their default action,
as does every signal that does not end a process by default.
"""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Iterable
from types import FrameType

import trio

from hango.telemetry import logs

# Seconds in which one signal may arrive twice: sent to the process, and to its group as well.
_SIGNAL_DEDUP = 0.05


def _existing(*names: str) -> tuple[signal.Signals, ...]:
    return tuple(signal.Signals[name] for name in names if name in signal.Signals.__members__)


# Ctrl-C, a service manager, a closed terminal, Ctrl-\, a CPU limit, a failing power supply.
DRAINING = _existing("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU", "SIGPWR")
# No meaning here, and without a handler each would end the process; `hango.watchdog` uses SIGUSR1.
IGNORED = _existing("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPOLL", "SIGPIPE")

_log = logging.getLogger(__name__)


def install() -> list[int]:
    """Turn each signal of `DRAINING` into Ctrl-C, and ignore those of `IGNORED`.

    For the time in which `watch_signals` does not run.  SIGINT and SIGQUIT count even if the process
    was started with them ignored, as shells start jobs in the background; SIGHUP does not, which is
    what nohup is for.  Signals are ignored by a handler, since SIG_IGN is inherited by other programs.

    Returns:
        The numbers of the signals that came, with SIGINT before them.
    """
    received: list[int] = [signal.SIGINT]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)  # which trio raises where it is safe

    signal.signal(signal.SIGINT, signal.default_int_handler)  # trio knows this one
    for number in DRAINING:
        if number != signal.SIGINT and not _is_nohup(number):
            signal.signal(number, interrupt)
    for other in (*IGNORED, *_realtime()):
        if signal.getsignal(other) == signal.SIG_DFL:
            signal.signal(other, _ignore)
    return received


def _is_nohup(number: int) -> bool:
    is_hangup = number == getattr(signal, "SIGHUP", None)
    return is_hangup and signal.getsignal(number) == signal.SIG_IGN


def _realtime() -> Iterable[int]:
    if not hasattr(signal, "SIGRTMIN"):
        return ()
    return range(signal.SIGRTMIN, signal.SIGRTMAX + 1)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing."""


async def watch_signals(
    first: trio.Event,
    longest: float = math.inf,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Set *first* at the first signal of `DRAINING`; end the process at once at the second.

    The process also ends *longest* seconds after the first signal, since a tool that ignores its
    cancellation would keep it alive for ever.  Ending at once neither finishes nor releases running
    runs: their leases lapse, and another process continues from their last finished turns.
    """
    watched = (number for number in DRAINING if not _is_nohup(number))
    with trio.open_signal_receiver(*watched) as signals:
        task_status.started()
        number = await anext(signals)
        first.set()
        with trio.move_on_after(_SIGNAL_DEDUP):
            async for _ in signals:
                pass
        _log.info("a second signal ends the process at once")
        with trio.move_on_after(longest) as waiting:
            number = await anext(signals)
        if waiting.cancelled_caught:
            _log.error(
                "ending: a task ignores its cancellation; its run continues when the lease lapses"
            )
    logs.flush()
    os._exit(128 + number)
