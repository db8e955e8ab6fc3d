"""Errors as HTTP: one table, and ``application/problem+json`` (RFC 9457).

Rule: a client learns what it can act on, and nothing else.  An error without a row here is a 500
whose text stays inside; the log tells its type and frames.
Only `hango.web` uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

import attrs
from quart import Response
from werkzeug.exceptions import HTTPException

from hango.codec import cut_text, dump_json
from hango.domain import JsonObject
from hango.errors import (
    AlreadyExists,
    Forbidden,
    HangoError,
    InvalidInput,
    KeyReused,
    LastOwner,
    NotFound,
    SessionBusy,
    SessionQueueFull,
    StateConflict,
    StoreUnavailable,
)

CONTENT_TYPE = "application/problem+json"
IDEMPOTENCY_KEY = "Idempotency-Key"
LONGEST_DETAIL = 500  # bytes; a detail may quote what the client sent
LONGEST_FIELD = 200  # bytes; an unknown key is as long as the client likes

_log = logging.getLogger("hango.web")


@attrs.frozen
class Kind:
    """One row of the table.

    Attributes:
        code: stable, for programs.
        title: the sentence that is the same every time.
        retry_after: seconds after which the same request may succeed; None when it will not.
    """

    status: int
    code: str
    title: str
    retry_after: int | None = None


MALFORMED = Kind(400, "malformed", "The request cannot be read")
UNAUTHENTICATED = Kind(401, "unauthenticated", "A valid API key is required")
FORBIDDEN = Kind(403, "forbidden", "Only an admin or owner may do this")
NOT_FOUND = Kind(404, "not_found", "No such thing, or not visible to you")
METHOD_NOT_ALLOWED = Kind(405, "method_not_allowed", "This method is not known here")
REQUEST_TIMEOUT = Kind(408, "request_timeout", "The body did not arrive in time")
CONFLICT = Kind(409, "conflict", "Somebody else was first; nothing was changed")
ALREADY_EXISTS = Kind(409, "already_exists", "The name is taken")
LAST_OWNER = Kind(409, "last_owner", "A tenant must have an active owner")
SESSION_BUSY = Kind(409, "session_busy", "The session has a queued or running run")
TOO_LARGE = Kind(413, "too_large", "The body is larger than this server accepts")
UNSUPPORTED_MEDIA = Kind(415, "unsupported_media_type", "The body must be application/json")
INVALID = Kind(422, "invalid", "The request says something that cannot be")
KEY_REUSED = Kind(422, "idempotency_key_reused", "The key came with another body before")
# a run takes seconds: sooner is a wasted request
QUEUE_FULL = Kind(429, "session_queue_full", "The session has as many live runs as it may", 5)
INTERNAL = Kind(500, "internal", "Something went wrong inside the server")
UNAVAILABLE = Kind(503, "unavailable", "The database cannot be reached", 2)
DRAINING = Kind(503, "draining", "This server is shutting down; another one takes new runs", 2)

_OF_ERRORS: Mapping[type[HangoError], Kind] = {
    InvalidInput: INVALID,
    Forbidden: FORBIDDEN,
    NotFound: NOT_FOUND,
    AlreadyExists: ALREADY_EXISTS,
    StateConflict: CONFLICT,
    LastOwner: LAST_OWNER,
    SessionBusy: SESSION_BUSY,
    SessionQueueFull: QUEUE_FULL,
    StoreUnavailable: UNAVAILABLE,
}
# what the web framework itself refuses, by status
_OF_STATUSES: Mapping[int, Kind] = {
    kind.status: kind
    for kind in (MALFORMED, NOT_FOUND, METHOD_NOT_ALLOWED, REQUEST_TIMEOUT, TOO_LARGE, INTERNAL)
}


class Refused(HangoError):
    """A request that the web refuses by itself, before any store is asked.

    Attributes:
        kind: the row of the table that answers it.
    """

    def __init__(self, kind: Kind, detail: str = "") -> None:
        super().__init__(detail)
        self.kind = kind


@attrs.frozen
class Problem:
    """One error as a client sees it.

    Attributes:
        detail: what is wrong this time; the title again when there is no more to say.
        field: path of the offending field of the body, or name of the query parameter or header; may
            be empty.
        headers: of the answer, beside its type; may be empty.
    """

    kind: Kind
    detail: str
    field: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def to_json(self) -> JsonObject:
        """Return the members of RFC 9457, with `code`, and `field` where there is one."""
        return {
            "type": f"urn:hango:problem:{self.kind.code}",
            "title": self.kind.title,
            "status": self.kind.status,
            "code": self.kind.code,
            "detail": self.detail,
        } | ({"field": self.field} if self.field else {})

    def to_response(self) -> Response:
        """Return the answer, ready to send."""
        headers = dict(self.headers) | {"Cache-Control": "no-store"}
        if self.kind.retry_after is not None:
            headers["Retry-After"] = str(self.kind.retry_after)
        if self.kind is UNAUTHENTICATED:
            headers["WWW-Authenticate"] = 'Bearer realm="hango"'
        return Response(dump_json(self.to_json()), self.kind.status, headers, content_type=CONTENT_TYPE)


def problem_of(error: Exception) -> Problem:
    """Return what a client is told of *error*."""
    match error:
        case InvalidInput():
            field = cut_text(error.field, LONGEST_FIELD)
            return Problem(INVALID, cut_text(f"{field} {error}".strip(), LONGEST_DETAIL), field)
        case Refused():
            return Problem(error.kind, str(error) or error.kind.title)
        case KeyReused():
            return Problem(KEY_REUSED, KEY_REUSED.title, IDEMPOTENCY_KEY)
        case AlreadyExists():
            return Problem(ALREADY_EXISTS, cut_text(str(error), LONGEST_DETAIL))
        case HTTPException():
            return _problem_of_http(error)
        case _:
            kind = next(
                (_OF_ERRORS[base] for base in type(error).__mro__ if base in _OF_ERRORS), INTERNAL
            )
            return Problem(kind, kind.title)


def _problem_of_http(error: HTTPException) -> Problem:
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _OF_STATUSES.get(
        status, MALFORMED if status < HTTPStatus.INTERNAL_SERVER_ERROR else INTERNAL
    )
    allow = {name: value for name, value in error.get_headers() if name == "Allow"}
    return Problem(kind, kind.title, headers=allow)


def answer_error(error: Exception) -> Response:
    """Answer *error*, and log it when it is ours and not the client's."""
    problem = problem_of(error)
    if problem.kind is INTERNAL:
        _log.error("a request failed", exc_info=error)
    return problem.to_response()
