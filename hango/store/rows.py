"""From rows to the values of the domain, and back: the store's side of the JSON border.

Rows come from asyncpg with ids and times typed and JSON as text; rows nested in a row come as JSON
altogether.  Both are read by the same functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import attrs
import cattrs

from hango.codec import blocks_from_json, blocks_to_json, dump_json
from hango.db.queries import Row
from hango.domain import (
    AgentDefinition,
    ApiKey,
    AuditEvent,
    Block,
    Gate,
    Limits,
    Message,
    ModelOptions,
    NewMessage,
    Result,
    Run,
    RunError,
    RunState,
    Session,
    StopReason,
    Tenant,
    Usage,
    User,
)

T = TypeVar("T")

_converter = cattrs.Converter()
_converter.register_structure_hook(UUID, lambda v, _: v if isinstance(v, UUID) else UUID(v))
_converter.register_structure_hook(
    datetime, lambda v, _: v if isinstance(v, datetime) else datetime.fromisoformat(v)
)
# what a JSON object holds stays as it is
_converter.register_structure_hook_func(lambda kind: kind is object, lambda v, _: v)


def _loaded(value: object) -> object:
    """Read a JSON column: text from asyncpg, a value already when it came nested."""
    return json.loads(value) if isinstance(value, str) else value


def nested(value: str) -> Row:
    """Read a row that came nested in another, as JSON."""
    row: Mapping[str, Any] = json.loads(value)
    return row


def _structured(row: Row, kind: type[T], **parsed: object) -> T:
    """Make a *kind* of the columns named as its fields; *parsed* replaces some."""
    return _converter.structure({**row, **parsed}, kind)


def tenant(row: Row) -> Tenant:
    """Read a row of ``tenants``."""
    return _structured(row, Tenant)


def user(row: Row) -> User:
    """Read a row of ``users``."""
    return _structured(row, User)


def api_key(row: Row) -> ApiKey:
    """Read a row of ``api_keys``."""
    return _structured(row, ApiKey)


def audit_event(row: Row) -> AuditEvent:
    """Read a row of ``audit_events``."""
    return _structured(row, AuditEvent, detail=_loaded(row["detail"]))


def agent(row: Row) -> AgentDefinition:
    """Read a row of ``agents``."""
    parsed = {name: _loaded(row[name]) for name in ("limits", "completion", "model_options")}
    return _structured(row, AgentDefinition, **parsed)


def session(row: Row) -> Session:
    """Read a row of ``sessions``."""
    return _structured(row, Session)


def run(row: Row) -> Run:
    """Read a row of ``runs``."""
    return Run(
        **{name: row[name] for name in _PLAIN_RUN_FIELDS},
        state=RunState(str(row["state"])),
        input=blocks_from_json(_loaded(row["input"])),
        usage=_converter.structure(_loaded(row["usage"]), Usage),
        error=_converter.structure({"code": row["error_code"], "message": row["error"]}, RunError)
        if row["error_code"]
        else None,
        stop_reason=_stop_reason(row),
    )


_PLAIN_RUN_FIELDS = tuple(
    field.name
    for field in attrs.fields(Run)
    if field.name not in {"state", "input", "usage", "error", "stop_reason"}
)


def message(row: Row, content: tuple[Block, ...] | None = None) -> Message:
    """Read a row of ``messages``; *content* is that of the row, where it is known already."""
    usage = _loaded(row["usage"])
    return Message(
        **{name: row[name] for name in _PLAIN_MESSAGE_FIELDS},
        content=blocks_from_json(_loaded(row["content"])) if content is None else content,
        usage=_converter.structure(usage, Usage) if usage is not None else None,
        stop_reason=_stop_reason(row),
    )


_PLAIN_MESSAGE_FIELDS = tuple(
    field.name
    for field in attrs.fields(Message)
    if field.name not in {"content", "usage", "stop_reason"}
)


def _stop_reason(row: Row) -> StopReason | None:
    return StopReason(str(row["stop_reason"])) if row["stop_reason"] else None


def result(column: str | None) -> Result | None:
    """Read the result of a call."""
    return None if column is None else _converter.structure(_loaded(column), Result)


# --- and back ------------------------------------------------------------------------------


def dump_usage(usage: Usage | None) -> str | None:
    """Write a usage for a json column."""
    return None if usage is None else dump_json(attrs.asdict(usage))


def dump_result(result: Result) -> str:
    """Write the result of a call for a json column."""
    return dump_json(attrs.asdict(result))


def dump_limits(limits: Limits) -> str:
    """Write limits for a json column; those not set are left out."""
    return dump_json(attrs.asdict(limits, filter=lambda _, value: value is not None))


def dump_model_options(options: ModelOptions) -> str:
    """Write model options for a json column; those not set are left out."""
    return dump_json(options.given())


def dump_gate(gate: Gate | None) -> str | None:
    """Write a completion gate for a json column."""
    return None if gate is None else dump_json(attrs.asdict(gate))


def message_columns(messages: Sequence[NewMessage]) -> dict[str, Sequence[object]]:
    """Spread *messages* over the array parameters of the statements that store several."""
    return {
        "message_ids": [m.id for m in messages],
        "run_ids": [m.run_id for m in messages],
        "turns": [m.turn for m in messages],
        "roles": [m.role for m in messages],
        "contents": [dump_json(blocks_to_json(m.content)) for m in messages],
        "stop_reasons": [m.stop_reason for m in messages],
        "usages": [dump_usage(m.usage) for m in messages],
        "partials": [m.partial for m in messages],
        "synthetics": [m.synthetic for m in messages],
    }


def stored_messages(
    messages: Sequence[NewMessage],
    columns: Mapping[str, Sequence[object]],
    session_id: UUID,
    row: Row,
) -> list[Message]:
    """Return *messages* as they are stored, by what `message_columns` made of them.

    Args:
        messages: as they were to be stored.
        columns: as they were sent.
        session_id: their session.
        row: the answer to the write, which has the seq before and the time.
    """
    sent = enumerate(zip(messages, columns["contents"], strict=True), row["seq_before"] + 1)
    return [
        Message(
            session_id=session_id,
            seq=seq,
            created_at=row["stored_at"],
            **attrs.asdict(message, recurse=False) | {"content": blocks_from_json(_loaded(content))},
        )
        for seq, (message, content) in sent
    ]
