"""Errors as HTTP: the table is whole, and says nothing it should not."""

from __future__ import annotations

import json

import pytest
from werkzeug.exceptions import ImATeapot, MethodNotAllowed, RequestTimeout
from werkzeug.exceptions import NotFound as NoRoute

from hango import errors
from hango.web import problem
from hango.web.problem import ApiError, ProblemType, problem_of

ROWS = [value for value in vars(problem).values() if isinstance(value, ProblemType)]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidInput("is missing", field="input"), 422, "invalid"),
        (errors.Forbidden(), 403, "forbidden"),
        (errors.NotFound("there is no run 7"), 404, "not_found"),
        (errors.AlreadyExists("there is an agent 'a' already"), 409, "already_exists"),
        (errors.StateConflict(), 409, "conflict"),
        (errors.SessionBusy(), 409, "session_busy"),
        (errors.LastOwner("acme"), 409, "last_owner"),
        (errors.KeyReused("run 7"), 422, "idempotency_key_reused"),
        (errors.SessionQueueFull(), 429, "session_queue_full"),
        (errors.TenantQueueFull(), 429, "tenant_queue_full"),
        (errors.StoreUnavailable("host=10.0.0.1 refused"), 503, "unavailable"),
        (ApiError(problem.DRAINING), 503, "draining"),
        (ApiError(problem.UNAUTHENTICATED), 401, "unauthenticated"),
        (NoRoute(), 404, "not_found"),
        (MethodNotAllowed(["GET"]), 405, "method_not_allowed"),
        (RequestTimeout(), 408, "request_timeout"),
        (ImATeapot(), 400, "malformed"),
        (errors.MigrationError("0002 is missing"), 500, "internal"),
        (ZeroDivisionError("secret"), 500, "internal"),
    ],
)
def test_every_error_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    """Each kind of error is answered with its own status and code."""
    body = problem_of(error).to_json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"urn:hango:problem:{code}"


def test_codes_are_unique() -> None:
    """A code stands for one row of the table."""
    assert len({row.code for row in ROWS}) == len(ROWS) > 10


@pytest.mark.parametrize(
    "error",
    [
        errors.NotFound("there is no run of that name, in table runs"),
        errors.StoreUnavailable("password authentication failed for user hango"),
        errors.StateConflict("select * from runs"),
        KeyError("sk-secret"),
    ],
)
def test_what_happened_inside_stays_inside(error: Exception) -> None:
    """Errors whose text was not written for clients are answered with their title only."""
    told = problem_of(error)
    assert told.detail == told.type.title


def test_an_unknown_thing_and_a_hidden_one_are_told_alike() -> None:
    """The 404 of a route that is not, an id that is not and a hidden one are equal (F02)."""
    route, unknown, hidden = NoRoute(), errors.NotFound(), errors.NotFound("hidden")
    assert problem_of(route).to_json() == problem_of(unknown).to_json() == problem_of(hidden).to_json()


def test_a_field_is_named_and_bounded() -> None:
    """A hostile key is quoted up to a bound, and can be sent whatever is in it."""
    told = problem_of(errors.InvalidInput("is not known here", field="k\x00\ud800" + "é" * 100_000))
    assert told.field.startswith("k\N{REPLACEMENT CHARACTER}")
    assert len(json.dumps(told.to_json())) < 10_000
