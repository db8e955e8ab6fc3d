"""How a command ends: what was not asked for is logged, and is no success (rule 27)."""

from __future__ import annotations

import errno
import logging
import signal
import sys
from collections.abc import Iterator

import click
import pytest
import trio

from hango.cli.commands import cli, run_command
from hango.errors import ConfigError, NotFound

CTRL_C = KeyboardInterrupt()


async def _in_a_nursery(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)


def _groups(*errors: BaseException) -> BaseExceptionGroup:
    return BaseExceptionGroup("outer", [BaseExceptionGroup("inner", errors)])


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Give the signals of the tests' own process back."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    for number, handler in before.items():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.mark.rule(27)
@pytest.mark.parametrize(
    ("error", "code", "reported"),
    [
        (CTRL_C, 130, ""),
        (_groups(CTRL_C), 130, ""),
        (EOFError(), 1, "EOFError"),
        (BrokenPipeError(errno.EPIPE, "a connection"), 1, "BrokenPipeError"),
        (_groups(EOFError()), 1, "EOFError"),
        (SystemExit(0), 1, "SystemExit"),
        (SystemExit(3), 1, "SystemExit"),
        (GeneratorExit(), 1, "GeneratorExit"),
        (_groups(SystemExit(0)), 1, "SystemExit"),
        (_groups(GeneratorExit(), KeyError("k")), 1, "KeyError"),
        (_groups(CTRL_C, ValueError("v")), 1, "ValueError"),
        (_groups(NotFound("no such thing")), 1, "no such thing"),
        (_groups(ConfigError(("HANGO_X: bad",))), 2, "HANGO_X: bad"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("nursery", [False, True])
def test_only_what_was_asked_for_ends_a_command_in_silence(
    *,
    error: BaseException,
    code: int,
    reported: str,
    nursery: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R-F1: whatever is raised through it, the process says so, and does not end as by Ctrl-C."""

    @click.command()
    def end() -> None:
        if nursery:
            trio.run(_in_a_nursery, error)
        raise error

    monkeypatch.setitem(cli.commands, "end", end)
    monkeypatch.setattr(sys, "argv", ["hango", "end"])
    with pytest.raises(SystemExit) as ended:
        run_command()
    assert ended.value.code == code
    assert reported in capsys.readouterr().err
    foreign = code == 1 and not isinstance(error, BaseExceptionGroup)
    assert not foreign or any(record.levelno == logging.CRITICAL for record in caplog.records)
