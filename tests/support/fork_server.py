"""Mortal processes for tests: forked by a warm one, so that each costs milliseconds and not seconds.

Its one rule: a test learns of a process only what any other process could: its files, its exit code,
and what it stored.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import attrs
import trio

from support.crashing_process import ProcessPlan
from support.processes import COMMAND, environment

_TESTS = Path(__file__).parents[1]
_PROGRAM = Path(__file__).parent / "programs" / "fork_processes.py"
_LONGEST = 60.0  # seconds; a process that says nothing for so long hangs


@attrs.define
class ForkServer:
    """A warm process, and the one it has made; there is one at a time.

    Attributes:
        pid: of the process that lives; None when none does.
    """

    pid: int | None = None
    _warm: subprocess.Popen[str] | None = None

    async def start(self, life: ProcessPlan) -> None:
        """Start a process."""
        assert self.pid is None, "the last one lives"
        self._warm = self._warm or _warmed_up()
        assert self._warm.stdin
        self._warm.stdin.write(f"{life.told()}\n")
        self._warm.stdin.flush()
        word, number = (await self._line()).split()
        assert word == "started"
        self.pid = int(number)

    async def stopped(self) -> None:
        """Wait until the process is stopped by SIGSTOP."""
        assert await self._line() == "stopped"

    def go_on(self) -> None:
        """Send it SIGCONT."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGCONT)

    async def ended(self) -> int:
        """Wait for its end, and return its exit code."""
        word, code = (await self._line()).split()
        assert word == "ended"
        self.pid = None
        return int(code)

    async def lived(self, life: ProcessPlan) -> int:
        """Start a process, and wait for its end."""
        await self.start(life)
        return await self.ended()

    async def _line(self) -> str:
        assert self._warm
        assert self._warm.stdout
        with trio.fail_after(_LONGEST):
            line = await trio.to_thread.run_sync(self._warm.stdout.readline, abandon_on_cancel=True)
        assert line, "the warm process has ended"
        return line.strip()

    def end(self) -> None:
        """End the warm process, and what it has made, stopped or not; the next start begins anew."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = None
        if self._warm is not None:
            with self._warm as warm:
                assert warm.stdin
                warm.stdin.close()
                warm.wait(_LONGEST)
            self._warm = None


def _warmed_up() -> subprocess.Popen[str]:
    interpreter = COMMAND[: COMMAND.index("-m")]
    return subprocess.Popen(
        [*interpreter, str(_PROGRAM)],
        env=environment(PYTHONPATH=str(_TESTS)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
