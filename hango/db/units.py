"""Units of work: what is done on one connection in one hop, in asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import asyncpg

from hango.db.connections import Connection
from hango.db.queries import Query, Row
from hango.errors import UniqueViolation

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], Awaitable[T]]
"""A unit of work."""


async def execute(connection: Connection, query: Query, **values: object) -> Sequence[Row]:
    """Run one statement of a unit of work (asyncio).

    Raises:
        UniqueViolation: the key is taken.
    """
    try:
        return await connection.fetch(query.sql, *query.arguments(values))
    except asyncpg.UniqueViolationError as error:
        raise UniqueViolation(error.constraint_name or "") from error


def fetch(query: Query, values: Mapping[str, object]) -> Work[Sequence[Row]]:
    """Make a unit of work of one statement.

    Raises:
        TypeError: *values* are not its arguments.
    """
    arguments = query.arguments(values)

    async def run(connection: Connection) -> Sequence[Row]:
        return await connection.fetch(query.sql, *arguments)

    return run


async def nothing(connection: Connection) -> None:
    """Show that the connection works (asyncio)."""
    await connection.execute("select 1")
