"""What the API answers.

Rule: a member is sent only if it is declared here, in this order, so that a new field of the domain is
not published by accident.
"""

from __future__ import annotations

import operator
from datetime import datetime
from typing import Annotated, Generic, Literal, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from hango.codec import time_to_json
from hango.domain import ErrorCode, JsonObject, MessageRole, Role, RunState, StopReason, UserStatus
from hango.web.models.blocks import Blocks

Time = Annotated[
    datetime,
    PlainSerializer(time_to_json, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
# Bounds that clients may rely on; values are not checked against them on the way out.
Count = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 0})]
Ordinal = Annotated[int, WithJsonSchema({"type": "integer", "minimum": 1})]
TraceId = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{32}$"})]
SpanId = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{16}$"})]
KeyText = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^hgo_[A-Za-z0-9_-]+$"})]
Object = Annotated[object, WithJsonSchema({"type": "object"})]


class Answer(BaseModel):
    """An object that the API answers, made from a value of the domain."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    @classmethod
    def of(cls, value: object) -> Self:
        """Take the declared members from *value*'s attributes."""
        return cls.model_validate(value)

    def to_json(self) -> JsonObject:
        """Return the object as JSON values."""
        return self.model_dump(mode="json")


class UserJson(Answer):
    """A person in a tenant."""

    id: UUID
    tenant_id: UUID
    email: str
    role: Role
    status: UserStatus
    created_at: Time


class KeyJson(Answer):
    """An API key of a user, without its text; the prefix tells keys apart."""

    id: UUID
    user_id: UUID
    prefix: str
    revoked_at: Time | None
    last_used_at: Time | None
    created_at: Time


class NewKeyJson(Answer):
    """A new API key with its text, which is shown only once."""

    id: UUID
    user_id: UUID
    key: KeyText


class AuditEventJson(Answer):
    """Something that was done in the tenant, or refused."""

    id: UUID
    actor_id: UUID | None = Field(description="The user; null: an operator's command line.")
    action: str = Field(examples=["run.create", "user.update", "access.deny"])
    target_kind: str
    target_id: UUID
    detail: Object
    trace_id: TraceId | None
    created_at: Time


class GateJson(Answer):
    """A completion gate: a verifier that must accept a finished run."""

    verify: str = Field(description="The verifier's name.")
    max_attempts: Ordinal


class LimitsJson(Answer):
    """An agent's own limits; null: the server's setting."""

    max_iterations: int | None = Field(description="Provider calls in one run.")
    tool_timeout: float | None = Field(description="Seconds that one tool call may take.")
    run_deadline: float | None = Field(description="Seconds that one execution may take.")
    max_tokens: int | None = Field(description="Tokens that one answer may have.")
    stream_retries: int | None = Field(
        description="How often an answer that broke off is asked for again; null: 2."
    )


class ModelOptionsJson(Answer):
    """What an agent asks of its model; null: the provider's default."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None = Field(description="Of one answer; the smaller of this and the limit's.")
    reasoning_effort: str | None
    thinking_budget: int | None
    tool_choice: str | None
    parallel_tool_calls: bool | None
    stop_sequences: list[str]
    extra: Object


class AgentJson(Answer):
    """A model with instructions, tools and limits."""

    id: UUID
    slug: str
    name: str
    provider: str
    model: str
    system_prompt: str
    tools: list[str] = Field(description="Tools it may call; empty: all registered ones.")
    guardrails: list[str]
    completion: GateJson | None
    limits: LimitsJson
    model_options: ModelOptionsJson
    created_at: Time


class SessionJson(Answer):
    """A conversation with one agent."""

    id: UUID
    agent_id: UUID
    created_by: UUID
    title: str
    last_seq: Count = Field(description="The `seq` of its newest message; 0: it has none.")
    created_at: Time


class UsageJson(Answer):
    """Tokens of one turn, or of a whole run."""

    input_tokens: Count = Field(description="Everything that was sent, cached tokens included.")
    output_tokens: Count
    cache_read_input_tokens: Count
    cache_write_input_tokens: Count
    reasoning_output_tokens: Count


class MessageJson(Answer):
    """A message of a session."""

    id: UUID
    session_id: UUID
    seq: Ordinal = Field(description="Its position in the session, without gaps.")
    run_id: UUID | None = Field(description="Null: it was posted through the API.")
    turn: Count | None = Field(description="The turn of the run; 0 is the run's input.")
    role: MessageRole
    content: Blocks
    stop_reason: StopReason | None
    usage: UsageJson | None
    partial: bool = Field(description="The model's answer was cut short.")
    synthetic: bool = Field(description="Written by hango, not by a person, model or tool.")
    created_at: Time


class RunErrorJson(Answer):
    """Why a run failed."""

    code: ErrorCode
    message: str


class RunJson(Answer):
    """One durable request to a session."""

    id: UUID
    session_id: UUID
    agent_id: UUID
    created_by: UUID
    lane: str
    session_seq: Ordinal = Field(description="Its position in the session's queue.")
    state: RunState
    input: Blocks
    error: RunErrorJson | None
    stop_reason: StopReason | None
    stopped_by: str = Field(description="What stopped a run that did not finish its work.")
    attempts: Ordinal
    iterations: Count = Field(description="Provider calls made.")
    resume_turn: Count = Field(description="Turns that are finished and stored.")
    usage: UsageJson
    final_message_id: UUID | None
    trace_id: TraceId
    span_id: SpanId | None
    cancel_requested_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    created_at: Time
    waiting_on: str | None = Field(
        description="What the last process to claim it does not have; it waits for one that has."
    )


class ListedRunJson(RunJson):
    """A run in a list; its `input` is there if it was asked for (`include=input`)."""

    input: Blocks = Field((), exclude_if=operator.not_)


class ProblemJson(Answer):
    """An error (RFC 9457)."""

    type: str = Field(json_schema_extra={"format": "uri"})
    title: str
    status: int
    code: str = Field(description="Stable, for programs.")
    detail: str = Field(description="What is wrong with this request, for people.")
    field: str | None = Field(
        None,
        description="Path of the wrong member (`input.0.text`), or name of the parameter or header.",
    )


class StatusJson(Answer):
    """The server's status."""

    status: Literal["ok"] = "ok"


A = TypeVar("A", bound=Answer)


class Page(Answer, Generic[A]):
    """A page of a list."""

    data: list[A]
    next_cursor: str | None = Field(description="Where the next page begins; null: there is none.")


class UserPage(Page[UserJson]):
    """A page of users, newest first."""


class KeyPage(Page[KeyJson]):
    """A page of keys, newest first."""


class AuditEventPage(Page[AuditEventJson]):
    """A page of the audit log, newest first."""


class AgentPage(Page[AgentJson]):
    """A page of agents, newest first."""


class SessionPage(Page[SessionJson]):
    """A page of sessions, newest first."""


class MessagePage(Page[MessageJson]):
    """A page of messages, oldest first."""


class RunPage(Page[ListedRunJson]):
    """A page of runs, newest first."""
