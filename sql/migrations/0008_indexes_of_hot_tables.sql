-- Which index needs which statement: tests/store/test_plans.py.

-- Said otherwise than in statements that look for queued or running runs only, so that Postgres cannot
-- read this index whole for these.  A statement that wants the live runs of a session says it like this.
drop index runs_live;
create index runs_live on runs (session_id, session_seq) where finished_at is null;

-- find_keyed_run: a run without a key, as most are, costs no entry when it is created, claimed or ended
alter table runs drop constraint runs_tenant_id_created_by_session_id_idempotency_key_key;
create unique index runs_idempotency_key on runs (tenant_id, created_by, session_id, idempotency_key)
 where idempotency_key is not null;

-- list_sessions walks the unique index of (tenant_id, id)
drop index sessions_tenant_idx;

-- Each run is changed twice in a way that leaves entries behind in all indexes.  By default a million
-- ended runs would have to be followed by 200000 more before anything is cleaned up or counted anew.
alter table runs set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);
