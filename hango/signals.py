"""The signals that end a process: the first one drains, the second one ends it at once."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys

import trio

# Seconds in which one signal may arrive twice: sent to the process, and to its group as well.
_SIGNAL_DEDUP = 0.05

_log = logging.getLogger(__name__)


async def watch_signals(
    first: trio.Event,
    longest: float = math.inf,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Set *first* at the first SIGINT or SIGTERM; end the process at once at the second.

    The process also ends *longest* seconds after the first signal, since a tool that ignores its
    cancellation would keep it alive for ever.  Ending at once neither finishes nor releases running
    runs: their leases lapse, and another process continues from their last finished turns.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
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
    sys.stderr.flush()
    os._exit(128 + number)
