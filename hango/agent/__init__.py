"""The agent loop, and agents that run in this process without a database.

Rule: this package imports neither actors nor store; it uses both through `hango.agent.ports`.
"""

from hango.agent.callbacks import CallbackThreads
from hango.agent.completion import (
    Completion,
    RunResult,
    ToolCall,
    Verdict,
    Verifier,
    all_todos_done,
)
from hango.agent.direct import Agent, Loop, Outcome, RunOpts, loop_unsupported
from hango.agent.guardrails import BeforeToolEvent, Guardrail
from hango.agent.history import SessionHistory
from hango.agent.loop import AgentLoop
from hango.agent.ports import (
    NULL_SINK,
    EventSink,
    ExecutionOptions,
    LoopLimits,
    Provider,
    RunOptions,
    Toolbox,
    Transcript,
)

__all__ = [
    "NULL_SINK",
    "Agent",
    "AgentLoop",
    "BeforeToolEvent",
    "CallbackThreads",
    "Completion",
    "EventSink",
    "ExecutionOptions",
    "Guardrail",
    "Loop",
    "LoopLimits",
    "Outcome",
    "Provider",
    "RunOptions",
    "RunOpts",
    "RunResult",
    "SessionHistory",
    "ToolCall",
    "Toolbox",
    "Transcript",
    "Verdict",
    "Verifier",
    "all_todos_done",
    "loop_unsupported",
]
