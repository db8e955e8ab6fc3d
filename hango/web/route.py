"""Routes: one declaration each, beside its handler.

Rule: the application's URL map and the OpenAPI document are both made from these declarations.  Errors
that follow from a declaration are derived: a body implies 400, 408, 413, 415 and 422, an id in the path
404, a required key 401.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Literal, ParamSpec, TypeVar

import attrs
from pydantic import BaseModel
from quart import Blueprint

from hango.domain import JsonObject
from hango.web import problem
from hango.web.models.schema import ref_to
from hango.web.problem import ProblemType
from hango.web.wire import DEFAULT_LIMIT, MAX_LIMIT

_OF_A_BODY = (
    problem.MALFORMED,
    problem.REQUEST_TIMEOUT,
    problem.TOO_LARGE,
    problem.UNSUPPORTED_MEDIA,
    problem.INVALID,
)


@attrs.frozen
class Parameter:
    """A query parameter or header.

    Attributes:
        checked: whether a wrong value is refused; otherwise it is ignored.
    """

    name: str
    place: Literal["query", "header"]
    description: str
    schema: JsonObject
    checked: bool = True


@attrs.frozen
class Reply:
    """A successful response.

    Attributes:
        model: of the JSON body; None where there is none, or *schema* describes it.
        headers, may_have: names of the headers that are always sent, and of those sent sometimes.
    """

    status: int
    description: str
    model: type[BaseModel] | None = None
    headers: Sequence[str] = ()
    may_have: Sequence[str] = ()
    media: str = "application/json"
    schema: JsonObject | None = None

    @property
    def content(self) -> JsonObject | None:
        """The schema of the body, by its content type; None where there is no body."""
        schema = ref_to(self.model) if self.model else self.schema
        return {self.media: {"schema": schema}} if schema else None


@attrs.frozen
class Route:
    """One operation of the API.

    Attributes:
        name: the handler's name, unique in the API; generated clients use it.
        tag: the part of the API it is in.
        body: model of the request body; None where a body must be empty.
        problems: errors that can happen, besides those that are derived.
        key: whether it needs an API key.
    """

    name: str
    tag: str
    method: str
    path: str
    summary: str
    description: str
    replies: Sequence[Reply]
    body: type[BaseModel] | None = None
    parameters: Sequence[Parameter] = ()
    problems: Sequence[ProblemType] = ()
    key: bool = True

    @property
    def ids(self) -> list[str]:
        """The names of the ids in the path, in order."""
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def example(self) -> JsonObject | None:
        """A request body; None where there is none."""
        return getattr(self.body, "EXAMPLE", None)

    @property
    def all_problems(self) -> list[ProblemType]:
        """Every error the route can answer, by status."""
        found = {problem.INTERNAL, *self.problems}
        if self.key:
            found |= {problem.UNAUTHENTICATED, problem.UNAVAILABLE}
        if self.ids:
            found.add(problem.NOT_FOUND)
        if self.method in {"POST", "PATCH"}:
            found.update(_OF_A_BODY)
        if any(parameter.checked for parameter in self.parameters):
            found.add(problem.INVALID)
        return sorted(found, key=lambda it: (it.status, it.code))


P = ParamSpec("P")
R = TypeVar("R")


def route(
    method: str,
    path: str,
    tag: str,
    *replies: Reply,
    body: type[BaseModel] | None = None,
    parameters: Sequence[Parameter] = (),
    problems: Sequence[ProblemType] = (),
    key: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare the method below as the handler of a route; `Route` describes the arguments.

    Its docstring is the summary of the operation and, after a blank line, the description.
    """

    def declare(handler: Callable[P, R]) -> Callable[P, R]:
        summary, _, rest = inspect.cleandoc(handler.__doc__ or "").partition("\n\n")
        vars(handler)["route"] = Route(
            handler.__name__,
            tag,
            method,
            path,
            summary,
            " ".join(rest.split()),
            replies,
            body,
            parameters,
            problems,
            key,
        )
        return handler

    return declare


_PAGE = (
    Parameter(
        "limit",
        "query",
        "Maximum number of rows in the page.",
        {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    ),
    Parameter("cursor", "query", "The `next_cursor` of the page before.", {"type": "string"}),
)


def page_route(
    path: str,
    tag: str,
    page: type[BaseModel],
    *,
    parameters: Sequence[Parameter] = (),
    problems: Sequence[ProblemType] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare the method below as the handler of a list that is read page by page."""
    reply = Reply(200, "A page.", page)
    return route("GET", path, tag, reply, parameters=[*parameters, *_PAGE], problems=problems)


def routes_of(handlers: type) -> list[Route]:
    """Return the routes that the methods of a class declare, in their order."""
    declared = (getattr(member, "route", None) for member in vars(handlers).values())
    return [found for found in declared if isinstance(found, Route)]


def blueprint_of(handlers: object) -> Blueprint:
    """Return the routes of an instance, ready to be registered."""
    blueprint = Blueprint(type(handlers).__name__, __name__)
    for found in routes_of(type(handlers)):
        path = re.sub(r"\{(\w+)\}", r"<\1>", found.path)
        blueprint.add_url_rule(path, found.name, getattr(handlers, found.name), methods=[found.method])
    return blueprint
