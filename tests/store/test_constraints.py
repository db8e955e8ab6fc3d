"""The invariants are constraints: Postgres refuses what must never be, whoever writes it."""

from __future__ import annotations

import pytest

from hango.db.pool import Pool
from hango.testing.plugin import SeededTenant, make_seeded_tenant, sql

CALL = (
    "insert into tool_effects (run_id, turn, ordinal, call_id, tool, effects, state, result, begin_id)"
    " select id, 1, 0, 'c1', 'pay',"
)
REFUSED = {
    "owned while queued": "update runs set owner_id = gen_random_uuid()",
    "a lease while queued": "update runs set lease_expires_at = now()",
    "running without an owner": "update runs set state = 'running', lease_expires_at = now()",
    "running without a lease": "update runs set state = 'running', owner_id = gen_random_uuid()",
    "terminal without an end": "update runs set state = 'succeeded'",
    "an end while queued": "update runs set finished_at = now()",
    "queued and cancelled": "update runs set cancel_requested_at = now()",
    "failed without a code": "update runs set state = 'failed', finished_at = now()",
    "a code without failure": "update runs set error_code = 'internal', error = 'x'",
    "an unknown code": "update runs set error_code = 'x', error = ''",
    "an unknown state": "update runs set state = 'paused'",
    "an unknown stop": "update runs set stop_reason = 'bored'",
    "more turns than iterations": "update runs set resume_turn = 1",
    "a bad trace": "update runs set trace_id = 'x'",
    "a key without a digest": "update runs set idempotency_key = 'k'",
    "a place taken": "update runs set session_seq = 1",
    "two running": (
        "update runs set state = 'running', owner_id = gen_random_uuid(), lease_expires_at = now()"
    ),
    "a message with half a key": (
        "insert into messages (id, tenant_id, session_id, seq, run_id, role, content)"
        " select gen_random_uuid(), tenant_id, session_id, 1, id, 'user', '[]' from runs limit 1"
    ),
    "a call of unknown effects": f"{CALL} 'read_only', 'started', null, gen_random_uuid() from runs",
    "a call finished without result": f"{CALL} 'keyed', 'finished', null, gen_random_uuid() from runs",
    "a result before the end": f"{CALL} 'unsafe', 'started', '{{}}', gen_random_uuid() from runs",
    "a call begun by nobody": f"{CALL} 'unsafe', 'started', null, null from runs",
    "another tenant's session": "update runs set tenant_id = (select id from tenants where slug = 'b')",
    "another tenant's agent": (
        "update sessions set agent_id = (select agents.id from agents join tenants"
        " on tenants.id = tenant_id where tenants.slug = 'b')"
    ),
    "another tenant's creator": (
        "update runs set created_by = (select users.id from users join tenants"
        " on tenants.id = tenant_id where tenants.slug = 'b' limit 1)"
    ),
    "two users of one address": "update users set email = 'OWNER@A.test'",
}


@pytest.fixture
async def two_tenants(pool: Pool) -> SeededTenant:
    """Tenant a with a session of two queued runs; tenant b with nothing but an agent."""
    world = await make_seeded_tenant(pool, "a")
    await make_seeded_tenant(pool, "b")
    session = await world.session()
    await world.run(session)
    await world.run(session)
    return world


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED.keys())
async def test_what_must_never_be_is_refused(two_tenants: SeededTenant, statement: str) -> None:
    """Each statement would break an invariant; each is refused, and by a constraint."""
    with pytest.raises(Exception, match=r"violates|duplicate key"):
        await sql(two_tenants.pool, statement)


async def test_heartbeats_and_turns_are_hot_updates(two_tenants: SeededTenant) -> None:
    """They touch no index, nor its predicate, so that a busy fleet does not bloat the tables."""
    columns = "lease_expires_at|resume_turn|iterations|usage|reclaims|missing_since|attempts|last_seq"
    indexed = await sql(
        two_tenants.pool,
        "select indexrelid::regclass from pg_index where pg_get_indexdef(indexrelid) ~ $1",
        columns,
    )
    tables = await sql(
        two_tenants.pool, "select relname from pg_class where 'fillfactor=70' = any (reloptions)"
    )
    assert not indexed
    assert {row["relname"] for row in tables} == {"runs", "sessions"}
