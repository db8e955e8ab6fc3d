"""What a process executes that will not live to tell: tools that leave marks, and fates bound to marks.

Its one rule: what happened is known from the journal, a line a mark, which outlives the process; a
tool writes its mark first, and then the process meets its fate.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from enum import StrEnum

import attrs
import trio

from hango.agent import RunResult, Verdict, Verifier
from hango.db.pool import Pool
from hango.domain import Block, Effects, Gate, ProviderRequest, ToolContext
from hango.store.runs import Runs
from hango.testing import Answer, FakeProvider
from hango.tools import Tool, tool

from support.journal_plugin import asked, said, write
from support.workers import SETTINGS

# A cancel may be rung before anybody listens; then the next heartbeat hears of it.
WITH_HEARTBEAT = attrs.evolve(SETTINGS, heartbeat_interval=1.0)
DIED = 86  # the exit code of a process that ended itself

TOOLS: Mapping[str, Effects] = {
    "look": Effects.READ_ONLY,
    "tidy": Effects.IDEMPOTENT,
    "pay": Effects.KEYED,
    "post": Effects.UNSAFE,
    "quit": Effects.READ_ONLY,
    "leave": Effects.READ_ONLY,
}


GATE = Gate("says_done", 2)


class ProcessFault(StrEnum):
    """What becomes of a process at a mark."""

    DIE = "die"  # at once, without a last word to anybody
    FREEZE = "freeze"  # until somebody sends SIGCONT
    LINGER = "linger"  # frozen, then waiting in the tool until released; see `CrashingTools`
    DRAIN = "drain"  # it is told to
    CANCEL = "cancel"  # its run is


@attrs.define
class CrashingTools:
    """The tools and the model of one process.

    The prompt is the script, as `support.journal_plugin` reads it.

    Attributes:
        fates: by mark, a tool's name or ``provider``, the prompt's name and the turn; each is met once,
            but a cancel always.
        crowd: how many tools have to come to the mark at which the process dies; they wait for it.
        drain: tells the process to drain.
        lingers: set once a tool does; the next call of it freezes, lets it go, and waits for its end.
        let_go: lets the tool that lingers return.
        gone: its execution has ended.
    """

    pool: Pool
    fates: dict[str, ProcessFault]
    crowd: int = 1
    drain: trio.Event = attrs.field(factory=trio.Event)
    lingers: trio.Event = attrs.field(factory=trio.Event)
    let_go: trio.Event = attrs.field(factory=trio.Event)
    gone: trio.Event = attrs.field(factory=trio.Event)

    @property
    def provider(self) -> FakeProvider:
        """Make the model."""
        return FakeProvider(self._answer, name="scripted")

    @property
    def tools(self) -> list[Tool]:
        """The tools."""
        return [self._tool(name, effects) for name, effects in TOOLS.items()]

    def _tool(self, name: str, effects: Effects) -> Tool:
        async def mark(context: ToolContext) -> str:
            write(f"{name} {context.idempotency_key}")
            await self._suffer(name, context)
            await trio.lowlevel.checkpoint()
            return f"{name} is done"

        return tool(effects=effects, name=name)(mark)

    @property
    def verifiers(self) -> Mapping[str, Verifier]:
        """What completion gates ask: one by the name of `GATE`."""
        return {GATE.verify: self._verify}

    async def _verify(self, result: RunResult) -> Verdict:
        """Leave a mark, and find out whether it is done."""
        write(f"verify {result.messages[0].run_id}:{result.turns}:0")
        await trio.lowlevel.checkpoint()
        return result.text.startswith("done"), f"after {len(result.tool_calls)} calls, not done"

    async def _suffer(self, name: str, context: ToolContext) -> None:
        match self.fates.get(name):
            case ProcessFault.CANCEL:
                assert context.scope is not None
                await Runs(self.pool).cancel(context.scope, context.run_id)
                await trio.sleep_forever()
            case ProcessFault.LINGER if not self.lingers.is_set():
                apply_fault(ProcessFault.FREEZE)
                self.lingers.set()
                await self.let_go.wait()
            case ProcessFault.LINGER:
                del self.fates[name]
                apply_fault(ProcessFault.FREEZE)
                self.let_go.set()
                await self.gone.wait()
                apply_fault(ProcessFault.FREEZE)
            case ProcessFault.DRAIN:
                self.drain.set()
            case ProcessFault.DIE if self.crowd > 1:
                self.crowd -= 1
                await trio.sleep_forever()
            case ProcessFault() as fate:
                del self.fates[name]
                apply_fault(fate)

    def _answer(self, request: ProviderRequest) -> Answer | Block:
        words, turn = asked(request)
        mark = f"provider {words[0]} {turn}"
        write(mark)
        if fate := self.fates.pop(mark, None):
            apply_fault(fate)
        return said(words, turn)


def apply_fault(fate: ProcessFault) -> None:
    """End this process, or stop it until somebody lets it go on; in the middle of whatever it does."""
    if fate is ProcessFault.DIE:
        os._exit(DIED)
    assert fate is ProcessFault.FREEZE
    signal.raise_signal(signal.SIGSTOP)
