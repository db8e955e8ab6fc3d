"""The attributes of spans: those of the GenAI conventions, of Langfuse and of OpenInference.

Pure.  Rule: no content, and no name that a model has made up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypeAlias

from hango.domain import AgentDefinition, Run, StopReason, Usage
from hango.telemetry import names

Value: TypeAlias = str | bool | int | float | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, Value]
Kind: TypeAlias = Literal["agent", "chain", "generation", "tool"]

# the conventions' words for why a model stopped
_FINISH = {
    StopReason.END_TURN: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.TOOL_USE: "tool_call",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_EXCEEDED: "length",
    StopReason.REFUSAL: "content_filter",
}
_OPENINFERENCE = {"agent": "AGENT", "chain": "CHAIN", "generation": "LLM", "tool": "TOOL"}


def kind(name: Kind) -> Attributes:
    """Return what tells tools for traces of agents what a span is."""
    return {
        "langfuse.observation.type": name,
        "openinference.span.kind": _OPENINFERENCE[name],
    }


def of_run(run: Run) -> Attributes:
    """Return what every span of a run has."""
    ids = {"tenant_id": run.tenant_id, "agent_id": run.agent_id, "run_id": run.id}
    return {
        "gen_ai.conversation.id": str(run.session_id),
        names.TENANT_ID: str(run.tenant_id),
        names.AGENT_ID: str(run.agent_id),
        names.SESSION_ID: str(run.session_id),
        names.RUN_ID: str(run.id),
        "session.id": str(run.session_id),
        "user.id": str(run.created_by),
        "langfuse.session.id": str(run.session_id),
        "langfuse.user.id": str(run.created_by),
        **{f"langfuse.trace.metadata.{name}": str(value) for name, value in ids.items()},
    }


def of_agent(agent: AgentDefinition, lane: str) -> Attributes:
    """Return what every span of a run has, once its agent is known."""
    return {
        names.AGENT_NAME: agent.name,
        "langfuse.trace.name": agent.name,
        "langfuse.trace.tags": (agent.slug, lane),
    }


def of_model(provider: str, model: str) -> Attributes:
    """Return which model is asked."""
    return {names.PROVIDER: provider, names.MODEL: model}


def finish_reason(reason: StopReason | None) -> str:
    """Return why a model stopped; None is an answer that broke off."""
    return "error" if reason is None else _FINISH.get(reason, reason.value)


def of_usage(usage: Usage) -> Attributes:
    """Return the tokens of a model call, also as Langfuse adds them up: each token once."""
    cached = usage.cache_read_input_tokens + usage.cache_write_input_tokens
    details = {
        "input": max(usage.input_tokens - cached, 0),
        "input_cached_tokens": usage.cache_read_input_tokens,
        "input_cache_creation": usage.cache_write_input_tokens,
        "output": usage.output_tokens,
    }
    return {
        **gen_ai_usage(usage),
        "langfuse.observation.usage_details": json.dumps({k: n for k, n in details.items() if n}),
        "llm.token_count.prompt": usage.input_tokens,
        "llm.token_count.completion": usage.output_tokens,
        "llm.token_count.total": usage.input_tokens + usage.output_tokens,
    }


def gen_ai_usage(usage: Usage) -> Attributes:
    """Return tokens by the conventions: all input is in the first, all output in the second."""
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write_input_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_output_tokens,
    }
