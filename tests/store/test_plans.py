"""Lists of runs read what they show, whatever else is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import pytest

from hango.db.connections import Connection
from hango.db.queries import QUERIES
from hango.domain import JsonObject, new_id
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
    "list_tenant_runs": "runs_tenant_idx",
    "list_tenant_runs_in_state": "runs_state_idx",
    "list_own_runs": "runs_creator_idx",
    "list_session_runs": "runs_session_id_session_seq_key",
    "get_run": "runs_tenant_id_id_key",
}


@pytest.mark.rule(29)
async def test_lists_of_runs_walk_an_index_under_a_generic_plan(world: SeededTenant) -> None:
    """R-F3, S-M3: the plan Postgres changes to after five calls does not depend on who asks."""
    session = await world.session()
    run = await world.run(session)
    await sql(world.pool, _OTHERS)
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
        assert _LISTS[name] in {node.get("Index Name") for node in nodes}, name
        assert not {node["Node Type"] for node in nodes} & {"Seq Scan", "Sort"}, name


@pytest.mark.rule(29)
async def test_a_poll_reads_the_heads_it_lists_and_not_the_queue(world: SeededTenant) -> None:
    """R-F15, S-M4: of 8000 queued runs it reads those up to the tenth head that is due."""
    await sql(world.pool, _OTHERS)
    session = await world.session()
    await sql(world.pool, _QUEUED.replace("$1", f"'{session.id}'"))
    values = {"now": None, "limit": 10, "max_running": 1000}
    plan = (await _plans(world, ["list_claimable_heads"], values, analyze=True))["list_claimable_heads"]
    reads = [node for node in _nodes(plan) if node.get("Relation Name") == "runs"]
    assert {node["Index Name"] for node in reads} == {
        "runs_queued",
        "runs_live",
        "runs_backed_off",
        "runs_state_idx",
    }
    # ten lines that are due and as many backed off, of 20 runs: each is read, and looked up in its line
    assert 0 < sum(map(_rows_read, reads)) <= 2 * 20 * 20


async def _plans(
    world: SeededTenant,
    queries: Iterable[str],
    values: Mapping[str, object],
    *,
    analyze: bool = False,
) -> dict[str, JsonObject]:
    """Return the generic plan of each statement; executed, too, if it is to be analyzed."""

    async def explain(connection: Connection) -> dict[str, JsonObject]:
        await connection.execute("analyze runs")
        await connection.execute("set plan_cache_mode = force_generic_plan")
        plans = {}
        for name in queries:
            query = QUERIES[name]
            given = ", ".join(_quoted(values[parameter]) for parameter in query.parameters)
            await connection.execute(f"prepare {name} as {query.sql}")
            plan = await connection.fetchval(
                f"explain (analyze {analyze}, format json) execute {name} ({given})"
            )
            plans[name] = cast(JsonObject, json.loads(plan)[0]["Plan"])
        await connection.execute("deallocate all; reset plan_cache_mode")
        return plans

    return await world.pool.unit(explain)


def _quoted(value: object) -> str:
    return "null" if value is None else f"'{value}'"


def _rows_read(node: JsonObject) -> float:
    each = [cast(float, node.get(key, 0)) for key in ("Actual Rows", "Rows Removed by Filter")]
    return sum(each) * cast(float, node["Actual Loops"])


def _nodes(plan: JsonObject) -> Iterator[JsonObject]:
    yield plan
    for inner in cast("list[JsonObject]", plan.get("Plans", [])):
        yield from _nodes(inner)
