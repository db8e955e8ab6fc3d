"""A plug-in whose tools hold the event loop or the interpreter.

The prompt is the script, as in `support.journal_plugin`.
"""

from __future__ import annotations

import re
import time

from hango import Effects, Plugins, tool
from hango.testing import FakeProvider

from support.journal_plugin import asked, said

_BACKTRACKS = re.compile(r"(a+)+$")


@tool(effects=Effects.READ_ONLY)
def hold_interpreter() -> str:
    """Match for ever, in C, without letting go of the interpreter; safe to run again."""
    return str(_BACKTRACKS.match("a" * 60 + "b"))


@tool(effects=Effects.READ_ONLY)
async def hold_loop_briefly() -> str:
    """Sleep in the event loop's own thread, but not for long; safe to run again."""
    time.sleep(2)  # noqa: ASYNC251 - the fault
    return "woke up"


@tool(effects=Effects.READ_ONLY)
async def be_quick() -> str:
    """Answer at once; safe to run again."""
    return "done"


def register(plugins: Plugins) -> None:
    """Register the model and its tools."""
    for each in (hold_interpreter, hold_loop_briefly, be_quick):
        plugins.tool(each)
    plugins.provider("freezing", lambda: FakeProvider(lambda it: said(*asked(it))))
