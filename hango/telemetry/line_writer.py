"""A log handler that never waits: a thread of its own writes the lines.

Rule: logging returns at once, whether or not standard error is read.  Lines that do not fit into the
bounded queue are dropped, and their number is written when the reader goes on.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Sequence

MAX_WAITING = 4 * 1024 * 1024  # bytes of lines that wait to be written
FLUSH_TIMEOUT = 1.0  # seconds
_SELECT_TIMEOUT = 1.0  # seconds


class LineWriter(logging.Handler):
    """Writes lines to a file descriptor, in order, from a thread that the first line starts."""

    def __init__(self, descriptor: int, *, max_waiting: int = MAX_WAITING) -> None:
        """Write to *descriptor*, which stays open; queue at most *max_waiting* bytes."""
        super().__init__()
        self._descriptor = descriptor
        self._max_waiting = max_waiting
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Begin with an empty queue and without a thread, which a fork does not copy."""
        self._changed = threading.Condition()
        self._lines: list[bytes] = []
        self._waiting = 0  # bytes
        self._dropped = 0  # lines, since the queue was last taken
        self._writing = False
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue *record*, formatted here: its fields are those of the caller's context."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  # arguments that do not fit; logging must not raise
            line = self.format(
                _record(record.levelno, f"a log line of {record.name} cannot be formatted")
            )
        self._put(line.encode(errors="backslashreplace") + b"\n")

    def _put(self, line: bytes) -> None:
        with self._changed:
            if self._dropped or self._waiting + len(line) > self._max_waiting:
                self._dropped += 1
                return
            self._lines.append(line)
            self._waiting += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hango-log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                while not self._lines:
                    self._changed.wait()
                lines, dropped = self._lines, self._dropped
                self._lines, self._waiting, self._dropped, self._writing = [], 0, 0, True
            if dropped:
                text = f"{dropped} log lines were dropped: standard error was not read in time"
                lines.append(self.format(_record(logging.WARNING, text)).encode() + b"\n")
            self._write(lines)

    def _write(self, lines: Sequence[bytes]) -> None:
        try:
            for line in lines:  # one by one, so that other writers come between lines only
                rest = memoryview(line)
                while rest:
                    rest = rest[self._write_some(rest) :]
        except OSError:
            pass  # no reader any more

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:  # another program made it non-blocking
            select.select([], [self._descriptor], [], _SELECT_TIMEOUT)
            return 0

    def flush(self) -> None:
        """Wait until all is written, for at most `FLUSH_TIMEOUT` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._writing, FLUSH_TIMEOUT)

    def close(self) -> None:
        """Flush; lines that are logged later may be lost."""
        self.flush()
        super().close()


def _record(level: int, message: str) -> logging.LogRecord:
    return logging.LogRecord(__name__, level, __file__, 0, message, None, None)
