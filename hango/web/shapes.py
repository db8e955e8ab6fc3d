"""The JSON of everything the API answers.

Rule: every key is spelled here, in the order it is sent, so that a new field of the domain is not
published by accident.  Imports no web server: the command line prints the same shapes.
"""

from __future__ import annotations

from datetime import UTC, datetime

import attrs

from hango.codec import blocks_to_json
from hango.domain import (
    AgentDefinition,
    ApiKey,
    AuditEvent,
    JsonObject,
    Limits,
    Message,
    Run,
    RunError,
    Session,
    Usage,
    User,
)
from hango.store.accounts import NewKey


def user_to_json(user: User) -> JsonObject:
    """Return a user."""
    return {
        "id": str(user.id),
        "tenant_id": str(user.tenant_id),
        "email": user.email,
        "role": user.role.value,
        "status": user.status.value,
        "created_at": time_to_json(user.created_at),
    }


def key_to_json(key: ApiKey) -> JsonObject:
    """Return a key, without its text."""
    return {
        "id": str(key.id),
        "user_id": str(key.user_id),
        "prefix": key.prefix,
        "revoked_at": time_to_json(key.revoked_at),
        "last_used_at": time_to_json(key.last_used_at),
        "created_at": time_to_json(key.created_at),
    }


def new_key_to_json(key: NewKey) -> JsonObject:
    """Return a key just made, with its text: the only time it is shown."""
    return {"id": str(key.id), "user_id": str(key.user_id), "key": key.key}


def audit_event_to_json(event: AuditEvent) -> JsonObject:
    """Return something that was done."""
    return {
        "id": str(event.id),
        "actor_id": _or_none(event.actor_id),
        "action": event.action,
        "target_kind": event.target_kind,
        "target_id": str(event.target_id),
        "detail": event.detail,
        "trace_id": event.trace_id,
        "created_at": time_to_json(event.created_at),
    }


def agent_to_json(agent: AgentDefinition) -> JsonObject:
    """Return an agent; what it holds can be sent back as it is, its id and time aside."""
    return {
        "id": str(agent.id),
        "slug": agent.slug,
        "name": agent.name,
        "provider": agent.provider,
        "model": agent.model,
        "system_prompt": agent.system_prompt,
        "tools": list(agent.tools),
        "guardrails": list(agent.guardrails),
        "completion": agent.completion and attrs.asdict(agent.completion),
        "limits": _limits_to_json(agent.limits),
        "created_at": time_to_json(agent.created_at),
    }


def _limits_to_json(limits: Limits) -> JsonObject:
    return {
        "max_iterations": limits.max_iterations,
        "tool_timeout": limits.tool_timeout,
        "run_deadline": limits.run_deadline,
        "max_tokens": limits.max_tokens,
    }


def session_to_json(session: Session) -> JsonObject:
    """Return a session."""
    return {
        "id": str(session.id),
        "agent_id": str(session.agent_id),
        "created_by": str(session.created_by),
        "title": session.title,
        "last_seq": session.last_seq,
        "created_at": time_to_json(session.created_at),
    }


def message_to_json(message: Message) -> JsonObject:
    """Return a message."""
    return {
        "id": str(message.id),
        "session_id": str(message.session_id),
        "seq": message.seq,
        "run_id": _or_none(message.run_id),
        "turn": message.turn,
        "role": message.role,
        "content": blocks_to_json(message.content),
        "stop_reason": message.stop_reason,
        "usage": usage_to_json(message.usage) if message.usage else None,
        "partial": message.partial,
        "synthetic": message.synthetic,
        "created_at": time_to_json(message.created_at),
    }


def run_to_json(run: Run) -> JsonObject:
    """Return a run; owner, lease and epoch are the executors' business and stay inside."""
    return {
        "id": str(run.id),
        "session_id": str(run.session_id),
        "agent_id": str(run.agent_id),
        "created_by": str(run.created_by),
        "lane": run.lane,
        "session_seq": run.session_seq,
        "state": run.state.value,
        "input": blocks_to_json(run.input),
        "error": _error_to_json(run.error) if run.error else None,
        "stop_reason": run.stop_reason,
        "stopped_by": run.stopped_by,
        "attempts": run.attempts,
        "iterations": run.iterations,
        "resume_turn": run.resume_turn,
        "usage": usage_to_json(run.usage),
        "final_message_id": _or_none(run.final_message_id),
        "trace_id": run.trace_id,
        "span_id": run.span_id,
        "cancel_requested_at": time_to_json(run.cancel_requested_at),
        "started_at": time_to_json(run.started_at),
        "finished_at": time_to_json(run.finished_at),
        "created_at": time_to_json(run.created_at),
    }


def _error_to_json(error: RunError) -> JsonObject:
    return {"code": error.code.value, "message": error.message}


def usage_to_json(usage: Usage) -> JsonObject:
    """Return the tokens of a turn or a run."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "cache_write_input_tokens": usage.cache_write_input_tokens,
        "reasoning_output_tokens": usage.reasoning_output_tokens,
    }


def time_to_json(time: datetime | None) -> str | None:
    """Return *time* as RFC 3339 in UTC with microseconds, or None."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _or_none(value: object | None) -> str | None:
    return None if value is None else str(value)
