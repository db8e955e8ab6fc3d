"""Tenants, users and their keys, agents, sessions."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import attrs

from hango.domain.model_options import ModelOptions
from hango.domain.values import JsonObject


class Role(StrEnum):
    """The rights of a user: members use what they created, admins and owners all of the tenant."""

    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    @property
    def administers(self) -> bool:
        """Whether this role sees and changes everything in its tenant."""
        return self is not Role.MEMBER

    @property
    def rank(self) -> int:
        """How much this role may do, compared to others."""
        return list(Role).index(self)


class UserStatus(StrEnum):
    """Whether a user's keys are accepted."""

    ACTIVE = "active"
    DISABLED = "disabled"


@attrs.frozen
class Tenant:
    """A customer."""

    id: UUID
    slug: str
    name: str
    created_at: datetime


@attrs.frozen
class User:
    """A person in a tenant."""

    id: UUID
    tenant_id: UUID
    email: str
    role: Role
    status: UserStatus
    created_at: datetime

    @property
    def scope(self) -> Scope:
        """What the user may see."""
        return Scope(self.tenant_id, self.id, self.role)


@attrs.frozen
class ApiKey:
    """An API key without its text; *prefix* is the start of the text, for people."""

    id: UUID
    user_id: UUID
    prefix: str
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


@attrs.frozen
class AuditEvent:
    """An entry of the audit log.

    Attributes:
        actor_id: who did it; None is the operator's shell.
        trace_id: of the run it is about, if it is about one.
    """

    id: UUID
    actor_id: UUID | None
    action: str
    target_kind: str
    target_id: UUID
    detail: JsonObject
    trace_id: str | None
    created_at: datetime


@attrs.frozen
class Scope:
    """The user that acts; decides what is visible."""

    tenant_id: UUID
    user_id: UUID
    role: Role


@attrs.frozen
class Limits:
    """An agent's own limits; None means the process's setting.

    Attributes:
        max_iterations: provider calls in one run.
        tool_timeout: seconds one tool call may take.
        run_deadline: seconds one execution may take.
        max_tokens: tokens one answer may have.
        stream_retries: how often one answer is asked for again after it broke off; None for 2.
    """

    max_iterations: int | None = None
    tool_timeout: float | None = None
    run_deadline: float | None = None
    max_tokens: int | None = None
    stream_retries: int | None = None


@attrs.frozen
class Gate:
    """The completion gate of an agent.

    Attributes:
        verify: the name its verifier is registered by.
        max_attempts: how often the model may say that it is done; at least 1.
    """

    verify: str
    max_attempts: int


@attrs.frozen
class AgentDefinition:
    """A stored agent; read again at each claim.

    Attributes:
        tools: names it may call; empty means every registered tool.
        guardrails: names of those asked before each tool call, in this order.
        completion: the gate a run that is done has to pass; None lets all pass.
        model_options: what it asks of its model.
    """

    id: UUID
    tenant_id: UUID
    slug: str
    name: str
    provider: str
    model: str
    system_prompt: str
    tools: tuple[str, ...]
    guardrails: tuple[str, ...]
    completion: Gate | None
    limits: Limits
    model_options: ModelOptions
    created_at: datetime


@attrs.frozen
class Session:
    """One conversation with one agent; `last_seq` is the seq of its newest message, 0 when empty."""

    id: UUID
    tenant_id: UUID
    agent_id: UUID
    created_by: UUID
    title: str
    last_seq: int
    created_at: datetime
