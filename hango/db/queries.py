"""The statements of ``sql/queries``, by name.

A file holds statements, each after a line ``-- name: verb_noun``, with named parameters ``$run_id``.
What several statements of a file share is written once, after a line ``-- part: verb_noun``, and stands
in them as ``{verb_noun}``.
PostgreSQL numbers its parameters, so the names are numbered here, once, at import: a missing
statement is a KeyError when hango starts, and a wrong argument a TypeError before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import attrs

Row: TypeAlias = "asyncpg.Record | Mapping[str, Any]"
"""One row of an answer, by column name."""

_NAME = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")
_COMMENT = re.compile(r"--[^\n]*")
_PARAMETER = re.compile(r"\$([a-z]\w*)")


@attrs.frozen
class Query:
    """One statement.

    Attributes:
        sql: as it is sent, parameters numbered.
        parameters: their names, in the order of their numbers.
    """

    name: str
    sql: str
    parameters: tuple[str, ...]

    def arguments(self, values: Mapping[str, object]) -> tuple[object, ...]:
        """Put *values* in the order of the numbers.

        Raises:
            TypeError: one is missing, or one too many.
        """
        if values.keys() != set(self.parameters):
            wrong = ", ".join(sorted(values.keys() ^ set(self.parameters)))
            raise TypeError(f"{self.name} takes {', '.join(self.parameters)}; wrong: {wrong}")
        return tuple(values[name] for name in self.parameters)


def parse(text: str) -> Iterator[Query]:
    """Read the statements of one file, in their order.

    Raises:
        KeyError: a statement uses a part that does not stand before it.
    """
    parts: dict[str, str] = {}
    _, *found = _NAME.split(text)
    for kind, name, body in zip(found[::3], found[1::3], found[2::3], strict=True):
        sql = _COMMENT.sub("", body).strip().removesuffix(";")
        sql = _PART.sub(lambda use: parts[use[1]], sql)
        if kind == "part":
            parts[name] = sql
            continue
        parameters = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
        pieces = _PARAMETER.split(sql)
        pieces[1::2] = [f"${parameters.index(parameter) + 1}" for parameter in pieces[1::2]]
        yield Query(name, "".join(pieces), parameters)


def sql_folder() -> Traversable:
    """Return the folder that holds ``migrations`` and ``queries``.

    Raises:
        FileNotFoundError: this installation has no such folder; it is damaged.
    """
    inside = files("hango").joinpath("sql")
    if inside.is_dir():
        return inside
    beside = Path(__file__).parents[2] / "sql"
    if beside.is_dir():
        return beside
    raise FileNotFoundError(
        f"hango's SQL files are neither in {inside} nor in {beside}: reinstall hango"
    )


def _load() -> Mapping[str, Query]:
    paths = sorted(sql_folder().joinpath("queries").iterdir(), key=lambda file: file.name)
    queries: dict[str, Query] = {}
    for query in (query for file in paths for query in parse(file.read_text("utf-8"))):
        if query.name in queries:
            raise ValueError(f"two statements are named {query.name}")
        queries[query.name] = query
    return queries


QUERIES: Mapping[str, Query] = _load()
