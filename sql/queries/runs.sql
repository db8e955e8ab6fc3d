-- Runs as their users see them: create, read, cancel.

-- name: insert_run
-- Put a run at the end of its session's line, or find the one that its key stands for.  Whoever adds to a
-- session queues at its row; what is counted and found then is read by volatile functions, which see what
-- was committed during the wait.  No row when the session cannot be seen.  No run in it when the session
-- has $max_live live runs, or its tenant $tenant_runs (0: no bound): that count does not see those being
-- inserted meanwhile.
with held as materialized (
    select id
      from sessions
     where id = $session_id
       and visible(tenant_id, created_by, $tenant_id, $user_id, $sees_all)
       for no key update
), line as materialized (
    select held.id, count_live_runs(held.id) as live from held
), earlier as materialized (
    select earlier.*
      from held, find_keyed_run($tenant_id, $user_id, held.id, $idempotency_key) as earlier
     where $idempotency_key::text is not null
), numbered as (
    update sessions
       set next_run_seq = next_run_seq + 1
      from line
     where sessions.id = line.id
       and line.live < $max_live
       and not exists (select from earlier)
       and ($tenant_runs::bigint = 0
            or (select count(*)
                  from (select from runs
                         where runs.tenant_id = sessions.tenant_id and state in ('queued', 'running')
                         limit $tenant_runs) as live) < $tenant_runs)
    returning sessions.*
), created as (
    insert into runs (id, tenant_id, session_id, session_created_by, agent_id, created_by, session_seq,
                      input, trace_id, request_trace, idempotency_key, request_sha256)
    select $run_id, tenant_id, id, created_by, agent_id, $user_id, next_run_seq - 1, $input,
           $trace_id, $request_trace, $idempotency_key, $request_sha256
      from numbered
    returning *
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail, trace_id)
    select $audit_id, tenant_id, created_by, 'run.create', 'run', id,
           jsonb_build_object('agent_id', agent_id, 'session_id', session_id, 'lane', lane), trace_id
      from created
)
select line.live, run.*,
       case when not run.replayed
            then pg_notify('hango', concat_ws(' ', run.session_id, run.id, run.tenant_id)) end as notified
  from line
  left join (select created.*, false as replayed from created
             union all
             select earlier.*, true from earlier) as run on true;

-- part: visible_run
visible(runs.tenant_id, runs.session_created_by, $tenant_id, $user_id, $sees_all);

-- name: get_run
select * from runs where id = $run_id and {visible_run};

-- part: older_runs
-- The rest of a list after the run $before, newest first; the whole list if that is null.  $before_at is
-- when $before was made, by its id: the place to go on from if that run is gone.  No "or", so that an
-- index is walked from there under a generic plan, too.
(created_at, id) < (coalesce((select earlier.created_at from runs as earlier where earlier.id = $before),
                             $before_at, 'infinity'),
                    coalesce($before, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
 order by created_at desc, id desc
 limit $limit + 1;

-- part: run_page
-- The first $limit runs of "page", by its "position"; without their inputs, or with no more than
-- $max_bytes of them, but for the first.
, sized as (
    select id, tenant_id, session_id, agent_id, created_by, lane, session_seq, state, claim_epoch,
           resume_turn, iterations, attempts, reclaims, usage, error, error_code, stop_reason,
           stopped_by, final_message_id, trace_id, span_id, owner_id, last_owner_id,
           cancel_requested_at, not_before, started_at, finished_at, created_at, waiting_on,
           case when $with_input then input else '[]' end as input,
           row_number() over listed as place, count(*) over () as found,
           sum(case when $with_input and $max_bytes::bigint is not null
                    then octet_length(input::text) else 0 end) over listed as bytes
      from page
    window listed as (order by position desc)
)
select *
  from sized
 where place <= $limit and ($max_bytes::bigint is null or bytes <= $max_bytes or place = 1)
 order by place;

-- name: list_tenant_runs
with page as (
    select runs.*, (created_at, id) as position
      from runs
     where tenant_id = $tenant_id and {visible_run} and {older_runs}
) {run_page};

-- name: list_tenant_runs_in_state
with page as (
    select runs.*, (created_at, id) as position
      from runs
     where tenant_id = $tenant_id and state = $state and {visible_run} and {older_runs}
) {run_page};

-- name: list_own_runs
-- Those in the sessions that a member created.
with page as (
    select runs.*, (created_at, id) as position
      from runs
     where tenant_id = $tenant_id and session_created_by = $user_id
       and ($state::text is null or state = $state)
       and {visible_run} and {older_runs}
) {run_page};

-- name: list_session_runs
-- In the order of the session's line, latest first.  What is visible is asked of the session, so that
-- only its own index is walked.
with page as (
    select runs.*, session_seq as position
      from sessions
      join runs on runs.session_id = sessions.id
     where sessions.id = $session_id
       and visible(sessions.tenant_id, sessions.created_by, $tenant_id, $user_id, $sees_all)
       and ($state::text is null or state = $state)
       and session_seq < case when $before::uuid is null then 9223372036854775807
                              else (select earlier.session_seq from runs as earlier
                                     where earlier.id = $before)
                         end
     order by session_seq desc
     limit $limit + 1
) {run_page};

-- name: cancel_run
-- On state alone, whoever owns it: a queued run ends here, a running one is asked to stop, an ended
-- one stays as it is.  Asking again changes nothing, and only what changed is audited.
-- The row is locked by its id first, so that the CASE decides on what is true after any wait.
with target as materialized (
    select id from runs where id = $run_id and {visible_run}
), cancelled as (
    update runs
       set state = case when state = 'queued' then 'cancelled' else state end,
           finished_at = case when state = 'queued' then coalesce($now::timestamptz, now()) end,
           cancel_requested_at = coalesce($now::timestamptz, now())
      from target
     where runs.id = target.id
       and num_nonnulls(finished_at, cancel_requested_at) = 0
    returning runs.*
), audited as (
    insert into audit_events (id, tenant_id, actor_id, action, target_kind, target_id, detail, trace_id)
    select $audit_id, tenant_id, $user_id, 'run.cancel', 'run', id,
           jsonb_build_object('session_id', session_id), trace_id
      from cancelled
)
select cancelled.*, pg_notify('hango', concat_ws(' ', session_id, id, tenant_id)) as notified from cancelled;
