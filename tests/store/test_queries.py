"""Every statement is one that Postgres accepts, and that the store uses."""

from __future__ import annotations

from pathlib import Path

import pytest

import hango.store
from hango.db.pool import Pool
from hango.db.queries import QUERIES, Query, parse

_SOURCES = {
    path.name: path.read_text("utf-8") for path in Path(hango.store.__file__).parent.glob("*.py")
}


async def test_every_query_is_accepted_by_the_migrated_schema(pool: Pool) -> None:
    """Postgres prepares each statement and counts as many parameters as the file names."""

    async def prepare(connection: object) -> dict[str, int]:
        prepared = {}
        for query in QUERIES.values():
            statement = await connection.prepare(query.sql)  # type: ignore[attr-defined]  # asyncpg's
            prepared[query.name] = len(statement.get_parameters())
        return prepared

    expected = {query.name: len(query.parameters) for query in QUERIES.values()}
    assert await pool.unit(prepare) == expected


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_is_used(name: str) -> None:
    """No statement lies about unused."""
    users = [module for module, text in _SOURCES.items() if f'QUERIES["{name}"]' in text]
    assert users


def test_names_become_numbers_in_order_of_appearance() -> None:
    """A parameter keeps its number wherever it stands; comments and casts are left alone."""
    text = "-- name: find\n-- by $nothing\nselect $b::int, $a, $b from t; -- end\n"
    assert list(parse(text)) == [Query("find", "select $1::int, $2, $1 from t", ("b", "a"))]


def test_a_part_stands_in_every_statement_that_uses_it() -> None:
    """What statements share is written once; its parameters are numbered with the others'."""
    text = "-- part: shared\n-- why\nb = $b;\n-- name: one\nselect $a where {shared};\n"
    assert list(parse(text)) == [Query("one", "select $1 where b = $2", ("a", "b"))]
    with pytest.raises(KeyError, match="unknown"):
        list(parse("-- name: two\nselect {unknown};"))


@pytest.mark.parametrize("values", [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_wrong_arguments_are_a_type_error(values: dict[str, object]) -> None:
    """A missing or unknown argument is told before anything is sent."""
    with pytest.raises(TypeError, match="find takes b, a"):
        Query("find", "select $1, $2", ("b", "a")).arguments(values)
