-- insert_run, which locks the session and then counts and finds runs in the same statement.  Volatile, so that
-- they read in a snapshot of their own, taken after the wait for that lock.
create function count_live_runs(session uuid) returns bigint language sql volatile as $$
    select count(*) from runs where session_id = session and finished_at is null
$$;
create function find_keyed_run(tenant uuid, creator uuid, session uuid, key text) returns setof runs
language sql volatile rows 1 as $$
    select * from runs
     where tenant_id = tenant and created_by = creator and session_id = session and idempotency_key = key
$$;
