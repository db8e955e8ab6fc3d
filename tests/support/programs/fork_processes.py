"""A process that has imported everything and makes others, each by a fork, one after the other.

Each input line is a `support.crashing_process.Life`.  Prints ``started <pid>``, ``stopped`` each time
the process is stopped, and ``ended <code>``, negative for a signal.  Has one thread and no event loop,
so that a forked process has neither.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback

from support.crashing_process import run_process

_LONGEST = 120  # seconds; longer than a test waits for a process


def tell(text: str) -> None:
    """Tell whoever started this process."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def be_born(line: str) -> int:
    """Fork a process that lives *line*; return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(0)
        run_process(line)
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the child may come back into the loop below
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def watch(pid: int) -> None:
    """Tell what becomes of a process until it has ended, or is killed since it takes too long.

    Nobody else may be there to kill one that is stopped: whoever started this may be gone.
    """
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(_LONGEST)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            signal.alarm(0)
            return tell(f"ended {os.waitstatus_to_exitcode(status)}")
        tell("stopped")


if __name__ == "__main__":
    assert threading.active_count() == 1
    gc.freeze()  # or the first collection in each child would copy every page
    for line in sys.stdin:
        pid = be_born(line)
        tell(f"started {pid}")
        watch(pid)
