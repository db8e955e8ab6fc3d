"""hango: an actor-model runtime on trio that runs AI agents durably in Postgres.

What is exported here is for users of hango and stays; everything else may change.
"""

from hango.agent import (
    Agent,
    BeforeToolEvent,
    Completion,
    Guardrail,
    Loop,
    Outcome,
    RunOpts,
    RunResult,
    ToolCall,
    Verdict,
    Verifier,
    all_todos_done,
    loop_unsupported,
)
from hango.domain import Effects, Limits, Result, ToolContext
from hango.plugins import Plugins
from hango.providers import openai_provider
from hango.tools import Tool, Toolkit, tool

__all__ = [
    "Agent",
    "BeforeToolEvent",
    "Completion",
    "Effects",
    "Guardrail",
    "Limits",
    "Loop",
    "Outcome",
    "Plugins",
    "Result",
    "RunOpts",
    "RunResult",
    "Tool",
    "ToolCall",
    "ToolContext",
    "Toolkit",
    "Verdict",
    "Verifier",
    "all_todos_done",
    "loop_unsupported",
    "openai_provider",
    "tool",
]
