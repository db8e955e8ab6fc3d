"""The agent loop: think, act, observe, until the model is done or something stops it.

Pure: it imports neither actors nor store, and sees the world through `hango.agent.ports`.
"""

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
from hango.agent.loop import AgentLoop, LoopLimits
from hango.agent.ports import NULL_SINK, EventSink, Provider, RunOptions, Toolbox, Transcript

__all__ = [
    "NULL_SINK",
    "Agent",
    "AgentLoop",
    "BeforeToolEvent",
    "Completion",
    "EventSink",
    "Guardrail",
    "Loop",
    "LoopLimits",
    "Outcome",
    "Provider",
    "RunOptions",
    "RunOpts",
    "RunResult",
    "ToolCall",
    "Toolbox",
    "Transcript",
    "Verdict",
    "Verifier",
    "all_todos_done",
    "loop_unsupported",
]
