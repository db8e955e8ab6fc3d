"""Errors as HTTP: one table, and ``application/problem+json`` (RFC 9457).

Rule: a client learns what it can act on, and nothing else.  An error that is not in the table is a 500
whose text is not sent; its type and frames are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

import attrs
from quart import Response
from werkzeug.exceptions import HTTPException

from hango.codec import cut_text
from hango.domain import JsonObject
from hango.errors import (
    AlreadyExists,
    Forbidden,
    HangoError,
    InvalidInput,
    KeyReused,
    LastOwner,
    NotFound,
    NotWritable,
    SessionBusy,
    SessionQueueFull,
    StateConflict,
    StoreUnavailable,
    TenantQueueFull,
)
from hango.web.models.responses import ProblemJson

CONTENT_TYPE = "application/problem+json"
IDEMPOTENCY_KEY = "Idempotency-Key"
MAX_DETAIL = 500  # bytes; a detail may quote what the client sent
MAX_FIELD = 200  # bytes; an unknown key can have any length

_log = logging.getLogger("hango.web")


@attrs.frozen
class ProblemType:
    """One row of the table.

    Attributes:
        code: stable, for programs.
        title: for people; the same every time.
        retry_after: seconds after which the same request may succeed; None when it will not.
    """

    status: int
    code: str
    title: str
    retry_after: int | None = None


MALFORMED = ProblemType(400, "malformed", "The request cannot be parsed")
UNAUTHENTICATED = ProblemType(401, "unauthenticated", "A valid API key is required")
FORBIDDEN = ProblemType(403, "forbidden", "Only an admin or owner may do this")
NOT_FOUND = ProblemType(404, "not_found", "Not found, or not visible to you")
METHOD_NOT_ALLOWED = ProblemType(405, "method_not_allowed", "This path does not have this method")
REQUEST_TIMEOUT = ProblemType(408, "request_timeout", "The body did not arrive in time")
CONFLICT = ProblemType(409, "conflict", "Another request changed this first; nothing was changed")
ALREADY_EXISTS = ProblemType(409, "already_exists", "The name is already in use")
LAST_OWNER = ProblemType(409, "last_owner", "A tenant must have an active owner")
SESSION_BUSY = ProblemType(409, "session_busy", "The session has a queued or running run")
TOO_LARGE = ProblemType(413, "too_large", "The body is larger than this server accepts")
UNSUPPORTED_MEDIA = ProblemType(415, "unsupported_media_type", "The body must be application/json")
INVALID = ProblemType(422, "invalid", "A member of the body, a parameter or a header is invalid")
KEY_REUSED = ProblemType(
    422, "idempotency_key_reused", "This idempotency key was used before, with a different body"
)
# a run takes seconds: sooner is a wasted request
QUEUE_FULL = ProblemType(
    429, "session_queue_full", "The session has the maximum number of queued and running runs", 5
)
TENANT_QUEUE_FULL = ProblemType(
    429, "tenant_queue_full", "Your tenant has the maximum number of queued and running runs", 5
)
INTERNAL = ProblemType(500, "internal", "Internal server error; see the server's log")
UNAVAILABLE = ProblemType(503, "unavailable", "The database is unavailable", 2)
DRAINING = ProblemType(503, "draining", "This server is shutting down; send new runs to another one", 2)

_OF_ERRORS: Mapping[type[HangoError], ProblemType] = {
    InvalidInput: INVALID,
    Forbidden: FORBIDDEN,
    NotFound: NOT_FOUND,
    AlreadyExists: ALREADY_EXISTS,
    StateConflict: CONFLICT,
    LastOwner: LAST_OWNER,
    SessionBusy: SESSION_BUSY,
    SessionQueueFull: QUEUE_FULL,
    TenantQueueFull: TENANT_QUEUE_FULL,
    StoreUnavailable: UNAVAILABLE,
}
# what the web framework itself refuses, by status
_OF_STATUSES: Mapping[int, ProblemType] = {
    it.status: it
    for it in (MALFORMED, NOT_FOUND, METHOD_NOT_ALLOWED, REQUEST_TIMEOUT, TOO_LARGE, INTERNAL)
}


class ApiError(HangoError):
    """A request that the web refuses itself, before it calls a store."""

    def __init__(self, problem_type: ProblemType, detail: str = "") -> None:
        super().__init__(detail)
        self.type = problem_type


@attrs.frozen
class Problem:
    """One error as a client sees it.

    Attributes:
        detail: what is wrong with this request; the title again if there is no more to say.
        field: path of the wrong member of the body, or name of the query parameter or header; may be
            empty.
        headers: to send besides the content type; may be empty.
    """

    type: ProblemType
    detail: str
    field: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def to_json(self) -> JsonObject:
        """Return the members of RFC 9457, with `code`, and `field` where there is one."""
        return self._body().model_dump(exclude_none=True)

    def to_response(self) -> Response:
        """Return the response, ready to send."""
        headers = dict(self.headers) | {"Cache-Control": "no-store"}
        if self.type.retry_after is not None:
            headers["Retry-After"] = str(self.type.retry_after)
        if self.type is UNAUTHENTICATED:
            headers["WWW-Authenticate"] = 'Bearer realm="hango"'
        text = self._body().model_dump_json(exclude_none=True)
        return Response(text, self.type.status, headers, content_type=CONTENT_TYPE)

    def _body(self) -> ProblemJson:
        return ProblemJson(
            type=f"urn:hango:problem:{self.type.code}",
            title=self.type.title,
            status=self.type.status,
            code=self.type.code,
            detail=self.detail,
            field=self.field or None,
        )


def problem_of(error: Exception) -> Problem:
    """Return the problem that a client gets for *error*."""
    match error:
        case InvalidInput():
            field = cut_text(error.field, MAX_FIELD)
            return Problem(INVALID, cut_text(f"{field} {error}".strip(), MAX_DETAIL), field)
        case ApiError():
            return Problem(error.type, str(error) or error.type.title)
        case KeyReused():
            return Problem(KEY_REUSED, KEY_REUSED.title, IDEMPOTENCY_KEY)
        case AlreadyExists() | NotWritable():
            kind = ALREADY_EXISTS if isinstance(error, AlreadyExists) else UNAVAILABLE
            return Problem(kind, cut_text(str(error), MAX_DETAIL))
        case HTTPException():
            return _problem_of_http(error)
        case _:
            known = (_OF_ERRORS[base] for base in type(error).__mro__ if base in _OF_ERRORS)
            found = next(known, INTERNAL)
            return Problem(found, found.title)


def _problem_of_http(error: HTTPException) -> Problem:
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    default = MALFORMED if status < HTTPStatus.INTERNAL_SERVER_ERROR else INTERNAL
    found = _OF_STATUSES.get(status, default)
    allow = {name: value for name, value in error.get_headers() if name == "Allow"}
    return Problem(found, found.title, headers=allow)


def answer_error(error: Exception) -> Response:
    """Return the response for *error*; log it if it is the server's fault."""
    problem = problem_of(error)
    if problem.type is INTERNAL:
        _log.error("a request failed", exc_info=error)
    return problem.to_response()
