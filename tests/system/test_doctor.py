"""`hango doctor`, as an operator meets it."""

from __future__ import annotations

import json

import pytest

from hango.db.pool import Pool
from hango.testing.plugin import make_seeded_tenant, sql

from support.embedded import temporary_folder
from support.processes import hango

pytestmark = pytest.mark.rule(26)


async def test_a_fresh_database_is_healthy(empty_database: str) -> None:
    """It is migrated first, and then there is nothing to find."""
    done = await hango("doctor", HANGO_DATABASE_URL=empty_database)
    assert (done.code, done.out, done.err) == (0, "no violations\n", "")


async def test_without_a_database_named_it_looks_at_hangos_own() -> None:
    """What is in the data folder is checked, as JSON if that is asked for."""
    with temporary_folder() as folder:
        done = await hango("doctor", "--json", HANGO_DATA_DIR=str(folder))
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"data": []}


async def test_what_is_found_is_a_line_each_and_the_exit_code(database: str, pool: Pool) -> None:
    """Each says which invariant, where, and what; the prompt is not repeated."""
    world = await make_seeded_tenant(pool)
    run = await world.run(await world.session(), "a secret")
    await sql(pool, "update sessions set last_seq = 1")
    await sql(pool, "delete from audit_events where action = 'run.create'")
    done = await hango("doctor", HANGO_DATABASE_URL=database)
    assert done.code == 1
    seq, audit = done.out.splitlines()
    assert seq.startswith(f"seq: session {run.session_id}: ")
    assert audit.startswith(f"audit: session {run.session_id} run {run.id}: ")
    assert "secret" not in done.out
    assert not done.err


async def test_json_is_one_object(database: str, pool: Pool) -> None:
    """For programs: the same, with a null where there is no run."""
    world = await make_seeded_tenant(pool)
    session = await world.session()
    await sql(pool, "update sessions set last_seq = 1")
    done = await hango("doctor", "--json", HANGO_DATABASE_URL=database)
    assert done.code == 1
    (found,) = json.loads(done.out)["data"]
    what = found.pop("what")
    assert "last_seq is 1" in what
    assert found == {"check": "seq", "session_id": str(session.id), "run_id": None}


async def test_wrong_usage_is_2(database: str) -> None:
    """So is a setting that cannot be used."""
    done = await hango("doctor", "now", HANGO_DATABASE_URL=database)
    assert done.code == 2
    done = await hango("doctor", HANGO_DATABASE_URL="mysql://somewhere")
    assert done.code == 2
