"""Statements read what they are about, whatever else is stored; each index has one that reads it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import pytest

from hango.db.connections import Connection
from hango.db.queries import QUERIES, Query, parse
from hango.domain import JsonObject, Session, new_id
from hango.testing.plugin import SeededTenant, sql

# Ended runs of 20 tenants beside the one that asks; a few failed, as in real life.
_OTHERS = """
with of as (
    insert into tenants (id, slug, name)
    select gen_random_uuid(), 'other-' || n, '' from generate_series(1, 20) as n
    returning id
), person as (
    insert into users (id, tenant_id, email, role)
    select gen_random_uuid(), id, 'a@b.test', 'owner' from of
    returning id, tenant_id
), agent as (
    insert into agents (id, tenant_id, slug, name, provider, model)
    select gen_random_uuid(), id, 'a', 'A', 'fake', 'm' from of
    returning id, tenant_id
), opened as (
    insert into sessions (id, tenant_id, agent_id, created_by)
    select gen_random_uuid(), agent.tenant_id, agent.id, person.id
      from agent join person using (tenant_id), generate_series(1, 4)
    returning id, tenant_id, agent_id, created_by
)
insert into runs (id, tenant_id, session_id, session_created_by, agent_id, created_by, session_seq,
                  state, input, trace_id, created_at, finished_at, error_code, error)
select gen_random_uuid(), tenant_id, id, created_by, agent_id, created_by, n,
       case when n = 250 then 'failed' else 'succeeded' end, '[]', repeat('1', 32),
       now() - n * interval '1 minute', now(),
       case when n = 250 then 'internal' end, case when n = 250 then '' end
  from opened, generate_series(1, 250) as n
"""
# A long queue: 400 sessions with 20 queued runs each; every second one is backed off.
_QUEUED = """
with opened as (
    insert into sessions (id, tenant_id, agent_id, created_by, title)
    select gen_random_uuid(), tenant_id, agent_id, created_by, place
      from sessions, generate_series(1, 400) as place
     where id = $1
    returning *
)
insert into runs (id, tenant_id, session_id, session_created_by, agent_id, created_by, session_seq,
                  input, trace_id, not_before)
select (lpad(to_hex(opened.title::int * 20 + n), 8, '0') || '-0000-7000-8000-000000000000')::uuid,
       tenant_id, id, created_by, agent_id, created_by, n, '[]', repeat('1', 32),
       case when n = 1 and opened.title::int % 2 = 0 then now() + interval '1 hour' end
  from opened, generate_series(1, 20) as n
"""
_LISTS = {
    "list_tenant_runs": {"runs_tenant_idx"},
    "list_tenant_runs_in_state": {"runs_state_idx"},
    "list_own_runs": {"runs_creator_idx"},
    "list_session_runs": {"runs_session_id_session_seq_key"},
    "get_run": {"runs_pkey", "runs_tenant_id_id_key"},
    "list_sessions": {"sessions_tenant_id_id_key"},
    "list_own_sessions": {"sessions_creator_idx"},
}
# Each index that is no constraint's, with a statement or a function that reads it.
_READ_BY = {
    "api_keys_user_idx": "lock_valid_keys",
    "audit_events_tenant_idx": "list_audit_events",
    "runs_backed_off": "list_claimable_heads",
    "runs_creator_idx": "list_own_runs",
    "runs_idempotency_key": "find_keyed_run",
    "runs_live": "claim_next_run",
    "runs_one_running": "reclaim_lapsed_runs",
    "runs_queued": "list_claimable_heads",
    "runs_state_idx": "list_tenant_runs_in_state",
    "runs_tenant_idx": "list_tenant_runs",
    "sessions_creator_idx": "list_own_sessions",
    "users_email_key": "get_user_by_email",
}
_INDEXES = """
select indexrelid::regclass::text as name
  from pg_index
 where indrelid::regclass::text in (select tablename from pg_tables where schemaname = 'public')
   and not exists (select from pg_constraint where conindid = indexrelid and contype in ('p', 'u'))
"""
# They change one run, which they know by its id.
_BY_ID = [
    "abandon_run",
    "append_messages",
    "begin_call",
    "cancel_run",
    "claim_next_run",
    "end_turn",
    "finish_call",
    "postpone_run",
    "release_run",
    "release_unconfirmed_claim",
    "renew_leases",
    "settle_run",
]
_COUNTED = ("claim_next_run", "runs_one_running")  # read whole where running runs are bounded
_UNKNOWN: Mapping[str, object] = defaultdict(lambda: None)  # a generic plan is for any values


@pytest.mark.rule(29)
async def test_lists_walk_an_index_under_a_generic_plan(world: SeededTenant) -> None:
    """R-F3, S-M3: the plan Postgres changes to after five calls does not depend on who asks."""
    session = await world.session()
    run = await world.run(session)
    await _fill(world, queued=session)
    values: Mapping[str, object] = {
        "tenant_id": world.tenant.id,
        "user_id": session.created_by,
        "sees_all": False,
        "session_id": session.id,
        "run_id": run.id,
        "state": "failed",
        "before": new_id(),
        "before_at": run.created_at,
        "limit": 50,
        "with_input": True,
        "max_bytes": 2**20,
    }

    for name, plan in (await _plans(world, _LISTS, values)).items():
        # above the limit it is a page, which may be sorted
        limits = [node for node in _nodes(plan) if node["Node Type"] == "Limit"]
        nodes = list(_nodes(limits[0] if limits else plan))
        assert _LISTS[name] & {node.get("Index Name") for node in nodes}, name
        assert not {node["Node Type"] for node in nodes} & {"Seq Scan", "Sort"}, name


@pytest.mark.rule(29)
@pytest.mark.parametrize("stale", [False, True])
async def test_a_poll_reads_the_heads_it_lists_and_not_the_queue(
    world: SeededTenant, *, stale: bool
) -> None:
    """R-F15, S-M4: of 8000 queued runs it reads those up to the tenth head that is due.

    Also when Postgres last looked at the table while nothing was queued.
    """
    await _fill(world, queued=await world.session(), stale=stale)
    values = {"now": None, "limit": 10, "max_running": 1000}
    plan = (await _plans(world, ["list_claimable_heads"], values, analyze=True))["list_claimable_heads"]
    reads = [node for node in _nodes(plan) if node.get("Relation Name") == "runs"]
    assert {"runs_queued", "runs_live"} <= {node["Index Name"] for node in reads}
    # ten lines that are due and as many backed off, of 20 runs: each is read, and looked up in its
    # line; and the 200 that are backed off, where Postgres thinks that none is
    assert 0 < sum(map(_rows_read, reads)) <= 2 * 20 * 20 + 200 * stale


@pytest.mark.rule(29)
async def test_a_run_is_found_by_its_id_though_none_was_live_when_last_counted(
    world: SeededTenant,
) -> None:
    """No statement reads an index of live runs whole, in the belief that it is empty."""
    await _fill(world, queued=await world.session(), stale=True)
    for name, plan in (await _plans(world, _BY_ID, _UNKNOWN)).items():
        reads = [node for node in _nodes(plan) if "Scan" in str(node["Node Type"])]
        whole = {(name, node.get("Index Name")) for node in reads if "Index Cond" not in node}
        assert {read for read in whole if read[1]} <= {_COUNTED}
        assert not [node for node in reads if node["Node Type"] == "Seq Scan"], name


async def test_each_index_has_a_statement_that_reads_it(world: SeededTenant) -> None:
    """An index costs an entry for each row: the ones that nothing reads are dropped."""
    await _fill(world, queued=await world.session())
    assert {row["name"] for row in await sql(world.pool, _INDEXES)} == set(_READ_BY)

    plans = await _plans(world, set(_READ_BY.values()), _UNKNOWN, settings="set enable_seqscan = off")
    for index, name in _READ_BY.items():
        assert index in {node.get("Index Name") for node in _nodes(plans[name])}, name


async def _fill(world: SeededTenant, *, queued: Session | None = None, stale: bool = False) -> None:
    """Store ended runs, and a long queue of sessions like *queued*.

    Args:
        world: where.
        queued: no queue without it.
        stale: Postgres counts the runs before there is a queue, and not again.
    """
    await sql(world.pool, _OTHERS)
    if stale:
        await sql(world.pool, "alter table runs set (autovacuum_enabled = false)")
        await sql(world.pool, "analyze runs")
    if queued:
        await sql(world.pool, _QUEUED.replace("$1", f"'{queued.id}'"))
    if not stale:
        await sql(world.pool, "analyze runs")


async def _plans(
    world: SeededTenant,
    queries: Iterable[str],
    values: Mapping[str, object],
    *,
    analyze: bool = False,
    settings: str = "",
) -> dict[str, JsonObject]:
    """Return the generic plan of each statement; executed, too, if it is to be analyzed."""

    async def explain(connection: Connection) -> dict[str, JsonObject]:
        await connection.execute("set plan_cache_mode = force_generic_plan;" + settings)
        plans = {}
        for name in queries:
            query = QUERIES.get(name) or await _function(connection, name)
            given = ", ".join(_quoted(values[parameter]) for parameter in query.parameters)
            await connection.execute(f"prepare {name} as {query.sql}")
            plan = await connection.fetchval(
                f"explain (analyze {analyze}, format json) execute {name} ({given})"
            )
            plans[name] = cast(JsonObject, json.loads(plan)[0]["Plan"])
        await connection.execute("deallocate all; reset plan_cache_mode; reset enable_seqscan")
        return plans

    return await world.pool.unit(explain)


async def _function(connection: Connection, name: str) -> Query:
    """Read a function of the schema as a statement."""
    found = await connection.fetchrow(
        "select prosrc, proargnames from pg_proc where proname = $1", name
    )
    assert found is not None, name
    names = rf"\b({'|'.join(found['proargnames'])})\b"
    text = re.sub(names, lambda argument: f"${argument[0]}", found["prosrc"])
    return next(parse(f"-- name: {name}\n{text}"))


def _quoted(value: object) -> str:
    return "null" if value is None else f"'{value}'"


def _rows_read(node: JsonObject) -> float:
    each = [cast(float, node.get(key, 0)) for key in ("Actual Rows", "Rows Removed by Filter")]
    return sum(each) * cast(float, node["Actual Loops"])


def _nodes(plan: JsonObject) -> Iterator[JsonObject]:
    yield plan
    for inner in cast("list[JsonObject]", plan.get("Plans", [])):
        yield from _nodes(inner)
