"""What is asked for by admins and owners, and of the server itself."""

from __future__ import annotations

from collections.abc import Sequence

from hango.domain import JsonObject
from hango.web import problem
from hango.web.openapi.operation import JSON, Answer, Operation, listing, reading
from hango.web.openapi.words import TEXT, named
from hango.web.problem import Kind

_ROOM = "administration"
_REFUSED = (problem.FORBIDDEN,)
_OWNERS = "What concerns an owner, or makes one, is an owner's to do."

ADMINISTRATION = (
    Operation(
        "create_user",
        "POST",
        "/v1/users",
        _ROOM,
        "Let somebody in, active and without a key.",
        [Answer(201, "The user.", named("User"), headers=("Location",))],
        description=_OWNERS,
        body=named("NewUser"),
        example={"email": "ada@example.com", "role": "member"},
        refusals=[*_REFUSED, problem.ALREADY_EXISTS],
    ),
    listing("list_users", "/v1/users", _ROOM, "User", "List users, newest first.", refusals=_REFUSED),
    reading("get_user", "/v1/users/{user_id}", _ROOM, "User", "Read a user.", refusals=_REFUSED),
    Operation(
        "update_user",
        "PATCH",
        "/v1/users/{user_id}",
        _ROOM,
        "Change a user's role or status.",
        [Answer(200, "The user.", named("User"))],
        description=f"{_OWNERS}  The last active owner stays one.",
        body=named("UserChange"),
        example={"status": "disabled"},
        refusals=[*_REFUSED, problem.LAST_OWNER],
    ),
    listing(
        "list_keys",
        "/v1/users/{user_id}/keys",
        _ROOM,
        "Key",
        "List the keys of a user, revoked ones too, newest first.",
        refusals=_REFUSED,
    ),
    Operation(
        "create_key",
        "POST",
        "/v1/users/{user_id}/keys",
        _ROOM,
        "Make a key for a user.",
        [Answer(201, "The key, with its text: it is shown this once.", named("NewKey"))],
        description=_OWNERS,
        refusals=_REFUSED,
    ),
    Operation(
        "revoke_key",
        "DELETE",
        "/v1/users/{user_id}/keys/{key_id}",
        _ROOM,
        "End a key.",
        [Answer(204, "It has ended, by this or before.")],
        description=_OWNERS,
        refusals=_REFUSED,
    ),
    listing(
        "list_audit_events",
        "/v1/audit-events",
        _ROOM,
        "AuditEvent",
        "List what was done in the tenant, newest first.",
        refusals=_REFUSED,
    ),
    reading("get_me", "/v1/me", "server", "User", "Read whose key this is."),
)


def _public(
    name: str,
    summary: str,
    schema: JsonObject,
    *,
    refusals: Sequence[Kind] = (),
    media: str = JSON,
) -> Operation:
    path = f"/{name}"
    answers = [Answer(200, "It is so.", schema, media=media)]
    name = name.partition(".")[0]
    return Operation(name, "GET", path, "server", summary, answers, refusals=refusals, key=False)


SERVER = (
    _public("healthz", "Ask whether the process lives.", named("Status")),
    _public(
        "readyz",
        "Ask whether it takes new runs, and has its database.",
        named("Status"),
        refusals=[problem.DRAINING, problem.UNAVAILABLE],
    ),
    _public("openapi.json", "Read this description, for programs.", {"type": "object"}),
    _public("docs", "Read this description, for people.", TEXT, media="text/html"),
)
