"""Signals to a server: each that would end a process by default drains it or is ignored."""

from __future__ import annotations

import signal

import pytest
import trio

from hango.signals import DRAINING, IGNORED

from support.processes import Running, started

SERVE = ("serve", "--bind", "127.0.0.1:0")
FAULTS = {"SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS", "SIGSTKFLT"}
# those that a process cannot change, and those that do not end one by default
UNTOUCHED = {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG"}
UNTOUCHED |= {"SIGWINCH", "SIGXFSZ"}  # Python ignores the latter
REALTIME = [signal.SIGRTMIN, signal.SIGRTMIN + 1, signal.SIGRTMAX]


def test_every_signal_is_decided() -> None:
    """N25: a signal that a new system or Python adds is decided, too."""
    known = {number.name for number in (*DRAINING, *IGNORED)}
    every = {
        signal.Signals(number).name for number in signal.valid_signals() if number < signal.SIGRTMIN
    }
    assert every - known == FAULTS | UNTOUCHED
    assert not known & (FAULTS | UNTOUCHED)


async def test_a_signal_without_a_meaning_changes_nothing(database: str) -> None:
    """A process that somebody asks for its stacks, or that a tool's timer hits, goes on."""
    async with started(*SERVE, ignoring="HUP", HANGO_DATABASE_URL=database) as server:
        await server.line("executing runs")
        for number in (*IGNORED, *REALTIME, signal.SIGHUP):
            server.process.send_signal(number)
        await server.line("(most recent call first)")  # what SIGUSR1 asks for
        server.signal(signal.SIGTERM)
        assert await server.ended() == 0
        assert any("draining" in line for line in server.lines)


@pytest.mark.parametrize("number", [each for each in DRAINING if each is not signal.SIGTERM])
async def test_a_signal_to_end_drains(database: str, number: signal.Signals) -> None:
    """Also one that the process was started with ignored, as a background job is with Ctrl-C."""
    ignoring = "INT QUIT"
    async with started(*SERVE, ignoring=ignoring, HANGO_DATABASE_URL=database) as server:
        await server.line("executing runs")
        server.signal(number)
        assert await server.ended() == 0
        assert any("draining" in line for line in server.lines)


@pytest.mark.parametrize(("words", "code"), [(SERVE, 0), (("run", "hello"), 128 + signal.SIGTERM)])
async def test_a_process_that_has_only_just_begun_ends_as_it_should(
    database: str, words: tuple[str, ...], code: int
) -> None:
    """R-F15: a server that is told to end while it loads has nothing to drain."""
    async with started(*words, HANGO_DATABASE_URL=database) as process:
        await _until_caught(process, signal.SIGTERM)
        process.signal(signal.SIGTERM)
        assert await process.ended() == code
    assert process.lines == []


async def _until_caught(process: Running, number: signal.Signals) -> None:
    """Wait until the process has a handler of its own; the kernel tells."""
    status = trio.Path(f"/proc/{process.process.pid}/status")
    with trio.fail_after(60):
        while True:
            lines = dict(line.split(":", 1) for line in (await status.read_text()).splitlines())
            if int(lines["SigCgt"], 16) >> (number - 1) & 1:
                return
            await trio.lowlevel.checkpoint()
