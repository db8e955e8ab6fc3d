"""What the API takes and answers, as JSON Schemas by name.

Rule: an object has the members listed here and no others; all of them always, unless they stand under
*optional*.  `hango.web.shapes` writes what is answered, the routes read what is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from hango.domain import ErrorCode, JsonObject, Role, RunState, StopReason, UserStatus
from hango.web.admin import LONGEST_EMAIL
from hango.web.agents import (
    LONGEST_RUN_DEADLINE,
    LONGEST_TOOL_TIMEOUT,
    MOST_ATTEMPTS,
    MOST_ITERATIONS,
    MOST_TOKENS,
    SLUG,
)
from hango.web.openapi.blocks import BLOCKS, INPUT, MESSAGE
from hango.web.openapi.words import COUNT, ID, NO_ID, NO_TIME, TEXT, TIME, maybe, named, one_of, shape
from hango.web.wire import SHORT

_WORD = {"type": "string", "pattern": r"\S", "maxLength": SHORT}
_EMAIL = {"type": "string", "format": "email", "maxLength": LONGEST_EMAIL}
_ROLE = one_of(Role, "A member acts on what they created, the others on all of the tenant.")
_STATUS = one_of(UserStatus, "Who is disabled is not let in, and their runs fail.")
_SLUG = {"type": "string", "pattern": f"^{SLUG}$"}
_NAMES = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


def _up_to(kind: str, most: int, description: str) -> JsonObject:
    least = {"minimum": 1} if kind == "integer" else {"exclusiveMinimum": 0}
    return {"type": [kind, "null"], **least, "maximum": most, "description": description}


_LIMITS: Mapping[str, JsonObject] = {
    "max_iterations": _up_to("integer", MOST_ITERATIONS, "Provider calls in one run."),
    "tool_timeout": _up_to("number", LONGEST_TOOL_TIMEOUT, "Seconds one tool call may take."),
    "run_deadline": _up_to("number", LONGEST_RUN_DEADLINE, "Seconds one execution may take."),
    "max_tokens": _up_to("integer", MOST_TOKENS, "Tokens one answer may have."),
}
_AGENT: Mapping[str, JsonObject] = {
    "slug": {**_SLUG, "description": "Unique in the tenant."},
    "name": {**TEXT, "description": "For people; the slug if it is not given."},
    "provider": {**TEXT, "description": "One that this server has registered."},
    "model": {**TEXT, "description": "As the provider calls it."},
    "system_prompt": TEXT,
    "tools": {**_NAMES, "description": "What it may call; empty: every registered tool."},
    "guardrails": {**_NAMES, "description": "Asked before each tool call, in this order."},
    "completion": {
        "anyOf": [named("Gate"), {"type": "null"}],
        "description": "The gate that a run which is done has to pass.",
    },
    "limits": named("Limits"),
}
_TAKEN = {
    **_AGENT,
    "name": {**_AGENT["name"], **_WORD},
    "model": {**_AGENT["model"], **_WORD},
    "limits": named("NewLimits"),
}
_NEEDED = ("slug", "provider", "model")

SCHEMAS: Mapping[str, JsonObject] = {
    "User": shape(
        "A person in a tenant.",
        {
            "id": ID,
            "tenant_id": ID,
            "email": TEXT,
            "role": _ROLE,
            "status": _STATUS,
            "created_at": TIME,
        },
    ),
    "NewUser": shape("", {"email": _EMAIL}, {"role": {**_ROLE, "default": Role.MEMBER.value}}),
    "UserChange": shape("What is not given stays.", {}, {"role": _ROLE, "status": _STATUS}),
    "Key": shape(
        "A user's key, without its text; people tell theirs apart by the prefix.",
        {
            "id": ID,
            "user_id": ID,
            "prefix": TEXT,
            "revoked_at": NO_TIME,
            "last_used_at": NO_TIME,
            "created_at": TIME,
        },
    ),
    "NewKey": shape(
        "A key with its text: this once.",
        {"id": ID, "user_id": ID, "key": {"type": "string", "pattern": "^hgo_[A-Za-z0-9_-]+$"}},
    ),
    "AuditEvent": shape(
        "Something that was done.",
        {
            "id": ID,
            "actor_id": {**NO_ID, "description": "Null: the operator's shell."},
            "action": {"type": "string", "examples": ["run.create", "user.update"]},
            "target_kind": TEXT,
            "target_id": ID,
            "detail": {"type": "object"},
            "trace_id": {"type": ["string", "null"], "pattern": "^[0-9a-f]{32}$"},
            "created_at": TIME,
        },
    ),
    "Gate": shape(
        "A completion gate.",
        {
            "verify": {**TEXT, "description": "A verifier that this server has registered."},
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": MOST_ATTEMPTS},
        },
    ),
    "Limits": shape("An agent's own limits; null: those of the server.", _LIMITS),
    "NewLimits": shape("What is not given is null.", {}, _LIMITS),
    "Agent": shape(
        "A model, its instructions and its tools.",
        {"id": ID, **_AGENT, "created_at": TIME},
    ),
    "NewAgent": shape(
        "",
        {name: _TAKEN[name] for name in _NEEDED},
        {name: schema for name, schema in _TAKEN.items() if name not in _NEEDED},
    ),
    "AgentChange": shape("What is not given stays; lists and limits are replaced whole.", {}, _TAKEN),
    "Session": shape(
        "One conversation with one agent.",
        {
            "id": ID,
            "agent_id": ID,
            "created_by": ID,
            "title": TEXT,
            "last_seq": {**COUNT, "description": "Of its newest message; 0 when there is none."},
            "created_at": TIME,
        },
    ),
    "NewSession": shape("", {"agent_id": ID}, {"title": {"type": "string", "maxLength": SHORT}}),
    **BLOCKS,
    **MESSAGE,
    "NewRun": shape("", {"input": INPUT}),
    "RunError": shape("Why a run failed.", {"code": one_of(ErrorCode), "message": TEXT}),
    "Run": shape(
        "One durable request to a session.",
        {
            "id": ID,
            "session_id": ID,
            "agent_id": ID,
            "created_by": ID,
            "lane": TEXT,
            "session_seq": {"type": "integer", "minimum": 1, "description": "Its place in the line."},
            "state": one_of(RunState),
            "input": {"type": "array", "items": named("Block")},
            "error": maybe(named("RunError")),
            "stop_reason": maybe(one_of(StopReason)),
            "stopped_by": {"type": "string", "description": "What stopped a run that is not done."},
            "attempts": {"type": "integer", "minimum": 1},
            "iterations": {**COUNT, "description": "Provider calls."},
            "resume_turn": {**COUNT, "description": "Turns that are finished and stored."},
            "usage": named("Usage"),
            "final_message_id": NO_ID,
            "trace_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "span_id": {"type": ["string", "null"], "pattern": "^[0-9a-f]{16}$"},
            "cancel_requested_at": NO_TIME,
            "started_at": NO_TIME,
            "finished_at": NO_TIME,
            "created_at": TIME,
        },
    ),
    "Problem": {
        "type": "object",
        "description": "An error (RFC 9457).",
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": TEXT,
            "status": {"type": "integer"},
            "code": {"type": "string", "description": "Stable, for programs."},
            "detail": {"type": "string", "description": "What is wrong this time, for people."},
            "field": {
                "type": "string",
                "description": "Path of the offending member (`input.0.text`), or the name of the "
                "parameter or header.",
            },
        },
        "required": ["type", "title", "status", "code", "detail"],
        "additionalProperties": False,
    },
    "Status": shape("", {"status": {"const": "ok"}}),
}
