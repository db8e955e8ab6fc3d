"""The log of a process whose standard error nobody reads, for a while or for ever (N25)."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator

import pytest

from hango.telemetry.line_writer import LineWriter

PIPE = 4096  # bytes, the least that Linux gives
LINE = "x" * 99  # with its end 100 bytes
WAITING = 1000  # bytes, so ten lines


class Pipe:
    """A pipe that is read only when a test says so."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE)

    def read_lines(self) -> list[str]:
        """Read at least one line, and none in part."""
        text = b""
        while not text.endswith(b"\n"):
            text += os.read(self.reader, PIPE)
        return text.decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Have a small pipe."""
    pipe = Pipe()
    yield pipe
    for descriptor in (pipe.reader, pipe.writer):
        os.close(descriptor)


def logger_to(writer: LineWriter) -> logging.Logger:
    """Make a logger that writes there only."""
    logger = logging.Logger("test")  # noqa: LOG001 - apart from the process's
    logger.addHandler(writer)
    return logger


@pytest.mark.parametrize("blocking", [True, False])
def test_a_log_that_is_not_read_stops_nothing_and_says_what_was_dropped(
    pipe: Pipe, *, blocking: bool
) -> None:
    """Logging returns; a reader that goes on gets whole lines, and the number of the others."""
    os.set_blocking(pipe.writer, blocking)
    log = logger_to(LineWriter(pipe.writer, max_waiting=WAITING))
    for _ in range(1000):
        log.info(LINE)
    kept, dropped = 0, 0
    while kept + dropped < 1000:
        for line in pipe.read_lines():
            if line == LINE:
                kept += 1
            else:
                assert line.endswith(" log lines were dropped: standard error was not read in time")
                dropped += int(line.split()[0])
    assert dropped
    log.info("afterwards")
    assert pipe.read_lines() == ["afterwards"]


def test_lines_that_are_read_all_arrive_in_order(pipe: Pipe) -> None:
    """A reader that keeps up sees what any handler would write."""
    log = logger_to(LineWriter(pipe.writer))
    for number in range(5000):
        log.info("line %d", number)
    lines: list[str] = []
    while len(lines) < 5000:
        lines += pipe.read_lines()
    assert lines == [f"line {number}" for number in range(5000)]


def test_an_end_does_not_wait_for_a_reader_for_long(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of what it could not write is lost with the process."""
    monkeypatch.setattr("hango.telemetry.line_writer.FLUSH_TIMEOUT", 0.01)
    writer = LineWriter(pipe.writer)
    for _ in range(100):
        logger_to(writer).info(LINE)
    writer.close()


def test_what_is_written_is_flushed_at_the_end(pipe: Pipe) -> None:
    """A command that ends right after a line has written it."""
    writer = LineWriter(pipe.writer)
    logger_to(writer).info("the last words")
    writer.close()
    os.set_blocking(pipe.reader, False)
    assert pipe.read_lines() == ["the last words"]


def test_a_reader_that_is_gone_is_no_error() -> None:
    """As for any program: the terminal was closed."""
    pipe = Pipe()
    os.close(pipe.reader)
    writer = LineWriter(pipe.writer)
    for _ in range(3):
        logger_to(writer).info("nobody reads this")
        writer.flush()
    os.close(pipe.writer)


def test_arguments_that_do_not_fit_are_named_and_not_raised(pipe: Pipe) -> None:
    """A mistake in a log line stops nothing either."""
    writer = LineWriter(pipe.writer)
    logger_to(writer).info("%d runs", "many")
    assert pipe.read_lines() == ["a log line of test cannot be formatted"]


def test_a_fork_logs_too(pipe: Pipe) -> None:
    """A tool may fork; the thread of the parent is not there in the child."""
    writer = LineWriter(pipe.writer)
    log = logger_to(writer)
    log.info("parent")
    writer.flush()
    child = os.fork()
    if not child:
        log.info("child")
        writer.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pipe.read_lines() == ["parent", "child"]
