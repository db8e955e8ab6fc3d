"""The watchdog of a process: reports an event loop that stands still, and ends one that stays so.

Code that holds the event loop or the interpreter's lock cannot be stopped from inside.  A process in
which it stands still has lost its leases anyway, so the process ends and the run that did it is counted
by the sweep like any other whose process died.

Used by whatever runs a process that executes runs or answers HTTP; `in_progress` by whatever calls code
that may hold the loop.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

import attrs
import trio

WARN_AFTER = 1.0  # seconds without a step of the loop; a busy loop takes milliseconds
_BEAT = 0.25  # seconds between two signs of life
_MAX_FRAMES = 8  # innermost, logged

_log = logging.getLogger(__name__)
_keys = count()
_in_progress: dict[int, str] = {}  # of the process, as the loop and the interpreter's lock are


@contextmanager
def in_progress(name: str) -> Iterator[None]:
    """Name what may hold the loop while the block runs; a stall is reported with these names."""
    key = next(_keys)
    _in_progress[key] = name
    try:
        yield
    finally:
        del _in_progress[key]


async def watch(limit: float) -> None:
    """Watch the event loop that runs this, until cancelled.

    A loop that stands still is reported after `WARN_AFTER` seconds, with what is in progress and where
    its thread is, as far as the interpreter's lock can be had; and once more when it goes on.  After
    *limit* seconds the stacks of all threads are written to standard error and the process ends with
    exit code 1.  That takes neither the loop nor the interpreter's lock: a thread of C does it.

    A process that was stopped (SIGSTOP, a frozen container) for as long ends, too, when it goes on.

    Meanwhile SIGUSR1 writes the stacks of all threads to standard error.
    """
    reporter = _Reporter(threading.get_ident())
    thread = threading.Thread(target=reporter.run, name="hango-watchdog", daemon=True)
    with _standard_error() as descriptor:
        thread.start()
        _report_stacks(descriptor)
        try:
            while True:
                reporter.beat()
                faulthandler.dump_traceback_later(limit, exit=True, file=descriptor)
                await trio.sleep(min(_BEAT, limit / 4))
        finally:
            faulthandler.cancel_dump_traceback_later()
            _report_stacks(None)
            reporter.stop()


@attrs.define
class _Reporter:
    """Reports stalls from a thread of its own.

    Attributes:
        loop_thread: the thread whose loop is watched.
    """

    loop_thread: int
    _last_beat: float = attrs.field(factory=time.monotonic, init=False)
    _stopped: threading.Event = attrs.field(factory=threading.Event, init=False)

    def beat(self) -> None:
        """Take note that the loop lives."""
        self._last_beat = time.monotonic()

    def stop(self) -> None:
        """End the thread; does not wait for it."""
        self._stopped.set()

    def run(self) -> None:
        """Report each stall twice: while it lasts, and how long it was."""
        stalled_since: float | None = None
        names = ""
        while not self._stopped.wait(_BEAT):
            last_beat = self._last_beat
            if stalled_since is not None and last_beat != stalled_since:
                seconds = last_beat - stalled_since
                _log.warning("the event loop was blocked for %.1f s%s", seconds, names)
                stalled_since = None
            if stalled_since is None and time.monotonic() - last_beat > WARN_AFTER:
                stalled_since, names = last_beat, _names()
                _log.warning("the event loop is blocked%s, at %s", names, self._location())

    def _location(self) -> str:
        frame = sys._current_frames().get(self.loop_thread)  # noqa: SLF001 - documented, for debuggers
        frames = [
            f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}:{line}"
            for frame, line in traceback.walk_stack(frame)
        ]
        return " < ".join(frames[:_MAX_FRAMES])


def _names() -> str:
    """Return the names of what is in progress; may be read while the loop changes them."""
    names = sorted({*list(_in_progress.values())})
    return f" while {', '.join(names)} ran" if names else ""


def _report_stacks(descriptor: int | None) -> None:
    """Have SIGUSR1 write all stacks to *descriptor*; None ends that."""
    if hasattr(faulthandler, "register"):  # not on Windows
        if descriptor is None:
            faulthandler.unregister(signal.SIGUSR1)
        else:
            faulthandler.register(signal.SIGUSR1, file=descriptor)


@contextmanager
def _standard_error() -> Iterator[int]:
    """Have a descriptor of standard error that does not block: a full pipe must not keep us alive."""
    try:
        descriptor = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    except OSError:  # a socket, or a system without /proc
        descriptor = os.dup(2)
    try:
        yield descriptor
    finally:
        with suppress(OSError):
            os.close(descriptor)
