-- claim_next_run, where a tenant's running runs are bounded: how many there are now.  Volatile, so that it
-- counts in a snapshot of its own, taken after the wait for the tenant's lock.
create function count_running_runs(tenant uuid) returns bigint language sql volatile as $$
    select count(*) from runs where tenant_id = tenant and state = 'running'
$$;
