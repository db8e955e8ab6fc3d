-- Runs as their users see them: create, read, cancel.

-- name: find_keyed_run
-- Under lock_session, so that of two requests with one key the second finds the first one's run.
select *
  from runs
 where tenant_id = $tenant_id and created_by = $user_id and session_id = $session_id
   and idempotency_key = $idempotency_key;

-- name: insert_run
-- Under lock_session, so the count is exact.  No row when the session has $max_live live runs.
with numbered as (
    update sessions
       set next_run_seq = next_run_seq + 1
     where id = $session_id
       and (select count(*) from runs
             where session_id = $session_id and state in ('queued', 'running')) < $max_live
    returning *
), created as (
    insert into runs (id, tenant_id, session_id, agent_id, created_by, session_seq, input, trace_id,
                      request_trace, idempotency_key, request_sha256)
    select $run_id, tenant_id, id, agent_id, $user_id, next_run_seq - 1, $input, $trace_id,
           $request_trace, $idempotency_key, $request_sha256
      from numbered
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail, trace_id)
    select $audit_id, tenant_id, created_by, 'run.create', 'run', id,
           jsonb_build_object('agent_id', agent_id, 'session_id', session_id, 'lane', lane), trace_id
      from created
)
select created.*, pg_notify('hango', session_id || ' ' || id) as rung from created;

-- name: get_run
select runs.*
  from runs
  join sessions on sessions.id = runs.session_id
 where runs.id = $run_id
   and visible(sessions.tenant_id, sessions.created_by, $tenant_id, $user_id, $sees_all);

-- name: list_runs
select runs.*
  from runs
  join sessions on sessions.id = runs.session_id
 where visible(sessions.tenant_id, sessions.created_by, $tenant_id, $user_id, $sees_all)
   and ($session_id::uuid is null or runs.session_id = $session_id)
   and ($state::text is null or runs.state = $state)
   and ($before::uuid is null or runs.id < $before)
 order by runs.id desc
 limit $limit;

-- name: cancel_run
-- On state alone, whoever owns it: a queued run ends here, a running one is asked to stop, an ended
-- one stays as it is.  Asking again changes nothing, and only what changed is audited.
-- The row is locked by its id first, so that the CASE decides on what is true after any wait.
with target as materialized (
    select runs.id
      from runs
      join sessions on sessions.id = runs.session_id
     where runs.id = $run_id
       and visible(sessions.tenant_id, sessions.created_by, $tenant_id, $user_id, $sees_all)
), cancelled as (
    update runs
       set state = case when state = 'queued' then 'cancelled' else state end,
           finished_at = case when state = 'queued' then coalesce($now::timestamptz, now()) end,
           cancel_requested_at = coalesce($now::timestamptz, now())
      from target
     where runs.id = target.id
       and (state = 'queued' or state = 'running' and cancel_requested_at is null)
    returning runs.*
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail, trace_id)
    select $audit_id, tenant_id, $user_id, 'run.cancel', 'run', id,
           jsonb_build_object('session_id', session_id), trace_id
      from cancelled
)
select cancelled.*, pg_notify('hango', session_id || ' ' || id) as rung from cancelled;
