"""The command line, a file for each group of commands; the work is done by `hango.app`.

This file loads nothing of hango: `main` must be ready for signals before it does, which takes a second.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

# Commands that end with 0 when a signal asks for it; until they have begun, nothing is to be drained.
_SERVERS = ("serve", "dev")


def main() -> None:
    """Run the command line; see `hango.cli.commands.run`."""
    for name in ("SIGINT", "SIGTERM", "SIGQUIT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _end)
    from hango.cli.commands import run_command  # noqa: PLC0415 - see above

    run_command()


def _end(number: int, _frame: FrameType | None) -> None:
    """End the process, which has not done anything yet."""
    os._exit(0 if sys.argv[1:2] and sys.argv[1] in _SERVERS else 128 + number)
