"""The invariants of the stored data, checked on a live database with ``invariants.sql``.

One rule: looking changes nothing and holds nothing up.  Each invariant is one session's own, so the
sessions are gone through page by page, in statements that are short.

Used by `hango doctor`, by the chaos run and by tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import attrs

from hango.db.pool import Pool
from hango.db.queries import QUERIES, Query

LIST_SESSION_PAGE = QUERIES["list_session_page"]

CHECKS: Final = (
    QUERIES["check_one_running_run"],
    QUERIES["check_seq"],
    QUERIES["check_line"],
    QUERIES["check_ownership"],
    QUERIES["check_claims"],
    QUERIES["check_stuck_runs"],
    QUERIES["check_ends"],
    QUERIES["check_final_messages"],
    QUERIES["check_last_words"],
    QUERIES["check_messages"],
    QUERIES["check_turns"],
    QUERIES["check_turn_order"],
    QUERIES["check_run_order"],
    QUERIES["check_run_times"],
    QUERIES["check_results"],
    QUERIES["check_usage"],
    QUERIES["check_effects"],
    QUERIES["check_audit"],
)

# Seconds a lease may have lapsed for: ten times the usual interval between sweeps.
STUCK_AFTER = 300.0

_PAGE = 500  # sessions: a statement's work is bounded, and a small database is one page
_FIRST = UUID(int=0)


def _name(query: Query) -> str:
    return query.name.removeprefix("check_")


_ORDER = tuple(_name(query) for query in CHECKS)
_OF_A_PAGE = tuple(query for query in CHECKS if "last" in query.parameters)


@attrs.frozen
class Violation:
    """Something that must not be.

    Attributes:
        check: which invariant, such as ``turns``.
        session_id: whose.
        run_id: None when it is the session's.
        what: a short text, without anything a user or a model said.
    """

    check: str
    session_id: UUID
    run_id: UUID | None
    what: str


async def check(
    pool: Pool, *, stuck_after: float = STUCK_AFTER, page: int = _PAGE
) -> Sequence[Violation]:
    """Return every violation, in the order of the checks; none is the good answer.

    What changes meanwhile is seen as it was or as it is: either way nothing is reported that was not
    so at some moment.

    Args:
        pool: the database.
        stuck_after: seconds a lease may have lapsed for without being swept.
        page: sessions a statement looks at.

    Raises:
        StoreUnavailable: no database, or a statement took longer than one may.
    """
    found: list[Violation] = []
    after = _FIRST
    while sessions := await pool.rows(LIST_SESSION_PAGE, after=after, limit=page):
        bounds = {
            "after": after,
            "last": sessions[-1]["id"],
            "patience": timedelta(seconds=stuck_after),
        }
        for query in _OF_A_PAGE:
            found += await _ask(pool, query, bounds)
        after = bounds["last"]
    for query in CHECKS:
        if query not in _OF_A_PAGE:
            found += await _ask(pool, query, {})
    return sorted(found, key=lambda violation: _ORDER.index(violation.check))


async def _ask(pool: Pool, query: Query, values: Mapping[str, object]) -> Sequence[Violation]:
    arguments = {name: values[name] for name in query.parameters}
    return [
        Violation(_name(query), row["session_id"], row["run_id"], row["what"])
        for row in await pool.rows(query, **arguments)
    ]
