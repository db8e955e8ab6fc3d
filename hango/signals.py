"""The signals that end a process: the first one drains, the second one ends at once."""

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

    Also *longest* seconds after the first: a tool that does not let itself be cancelled would keep the
    process for ever.  At once means: what is running is neither finished nor released.  Its lease
    lapses, and another process goes on from the last finished turn.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        number = await anext(signals)
        first.set()
        with trio.move_on_after(_SIGNAL_DEDUP):
            async for _ in signals:
                pass
        _log.info("a second signal ends at once")
        with trio.move_on_after(longest) as waiting:
            number = await anext(signals)
        if waiting.cancelled_caught:
            _log.error("something does not let itself be cancelled; its run is left to its lease")
    sys.stderr.flush()
    os._exit(128 + number)
