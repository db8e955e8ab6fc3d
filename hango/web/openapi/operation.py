"""The words in which the API is described.

Rule: what follows from something else is not said: whoever sends a body may send a wrong one, whoever
names an id may name an unknown one, and every request with a key may come with a bad one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs

from hango.domain import JsonObject
from hango.web import problem
from hango.web.openapi.words import named, page_of
from hango.web.problem import Kind
from hango.web.wire import DEFAULT_LIMIT, MAX_LIMIT

JSON = "application/json"

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
        place: ``query`` or ``header``.
        checked: whether a wrong one is refused; else it is ignored.
    """

    name: str
    place: str
    description: str
    schema: JsonObject
    checked: bool = True


@attrs.frozen
class Answer:
    """What comes back when all is well.

    Attributes:
        schema: of the body; None where there is none.
        headers: names of those that always come, and of those that may.
        media: type of the body.
    """

    status: int
    description: str
    schema: JsonObject | None = None
    headers: tuple[str, ...] = ()
    may_have: tuple[str, ...] = ()
    media: str = JSON


@attrs.frozen
class Operation:
    """One thing that can be asked of the API.

    Attributes:
        name: unique; clients are generated with it.
        room: the part of the API it is in.
        body: schema of what is sent; None where nothing is.
        example: of such a body.
        refusals: kinds of errors beside those that follow from the rest.
        key: whether it needs one.
    """

    name: str
    method: str
    path: str
    room: str
    summary: str
    answers: Sequence[Answer]
    description: str = ""
    body: JsonObject | None = None
    example: Mapping[str, object] | None = None
    parameters: Sequence[Parameter] = ()
    refusals: Sequence[Kind] = ()
    key: bool = True

    @property
    def ids(self) -> list[str]:
        """The names of the ids in the path, in its order."""
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def problems(self) -> list[Kind]:
        """Every kind of error it may be answered with, by status."""
        kinds = {problem.INTERNAL, *self.refusals}
        if self.key:
            kinds |= {problem.UNAUTHENTICATED, problem.UNAVAILABLE}
        if self.ids:
            kinds.add(problem.NOT_FOUND)
        if self.method in {"POST", "PATCH"}:
            kinds.update(_OF_A_BODY)
        if any(parameter.checked for parameter in self.parameters):
            kinds.add(problem.INVALID)
        return sorted(kinds, key=lambda kind: (kind.status, kind.code))


_PAGE = (
    Parameter(
        "limit",
        "query",
        "Rows of a page.",
        {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    ),
    Parameter("cursor", "query", "A `next_cursor` of this list.", {"type": "string"}),
)


def listing(
    name: str,
    path: str,
    room: str,
    of: str,
    summary: str,
    *,
    parameters: Sequence[Parameter] = (),
    refusals: Sequence[Kind] = (),
) -> Operation:
    """Describe a list that comes in pages."""
    answers = [Answer(200, "A page.", page_of(of))]
    parameters = [*parameters, *_PAGE]
    return Operation(
        name, "GET", path, room, summary, answers, parameters=parameters, refusals=refusals
    )


def reading(
    name: str, path: str, room: str, of: str, summary: str, *, refusals: Sequence[Kind] = ()
) -> Operation:
    """Describe one thing that is read."""
    answers = [Answer(200, "As it is now.", named(of))]
    return Operation(name, "GET", path, room, summary, answers, refusals=refusals)
