-- Lists of runs read their own tenant, creator or session and nobody else's, in the order of the database's
-- clock.  Who created a session never changes, so a run may keep a copy of it: that is what makes a
-- member's list an index scan.
alter table runs add column session_created_by uuid;
update runs set session_created_by = sessions.created_by from sessions where sessions.id = runs.session_id;
alter table runs alter column session_created_by set not null;

-- list_session_runs walks the unique index of (session_id, session_seq)
drop index runs_session_idx;
drop index runs_tenant_idx;
drop index runs_creator_idx;
-- list_tenant_runs
create index runs_tenant_idx on runs (tenant_id, created_at desc, id desc);
-- list_tenant_runs_in_state
create index runs_state_idx on runs (tenant_id, state, created_at desc, id desc);
-- list_own_runs
create index runs_creator_idx on runs (tenant_id, session_created_by, created_at desc, id desc);
