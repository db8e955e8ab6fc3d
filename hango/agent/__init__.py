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
    OptionsChecker,
    Provider,
    RunOptions,
    Toolbox,
    Transcript,
)
from hango.agent.provider_border import check_model_options

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
    "OptionsChecker",
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
    "check_model_options",
    "loop_unsupported",
]
