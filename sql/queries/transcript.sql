-- What the executor of a run writes.  Each statement takes its parts in the same order:
--   held     the session row, locked: whoever writes to a session queues here, before the fence
--   fence    the run, locked, if it is still this claim's; everything after derives from it
--   bumped   the session's last_seq, the only source of seq
--   stored   the messages
-- and returns no row when the fence did not hold.

-- name: load_execution
-- What an execution needs to know, read after its claim: the session, and today's rights and agent.
select to_jsonb(sessions) as session, to_jsonb(users) as creator, to_jsonb(agents) as agent,
       (select messages.id from messages
         where messages.session_id = sessions.id and seq = sessions.last_seq) as last_message_id
  from runs
  join sessions on sessions.id = runs.session_id
  left join users on users.id = runs.created_by and users.tenant_id = runs.tenant_id
  left join agents on agents.id = sessions.agent_id and agents.tenant_id = runs.tenant_id
 where runs.id = $run_id;

-- name: read_transcript
select * from messages where session_id = $session_id and seq > $after order by seq;

-- part: insert_messages
-- Stores the messages given as arrays, in their order, after the last message of the session.
insert into messages (id, tenant_id, session_id, seq, run_id, turn, role, content, stop_reason, usage,
                      partial, synthetic)
select m.id, bumped.tenant_id, bumped.id, bumped.before + m.place, m.run_id, m.turn, m.role, m.content,
       m.stop_reason, m.usage, m.partial, m.synthetic
  from bumped,
       unnest($message_ids::uuid[], $run_ids::uuid[], $turns::int[], $roles::text[],
              $contents::json[], $stop_reasons::text[], $usages::json[], $partials::boolean[],
              $synthetics::boolean[]) with ordinality
         as m (id, run_id, turn, role, content, stop_reason, usage, partial, synthetic, place)
returning *;

-- name: append_messages
with held as materialized (
    select id from sessions where id = $session_id for no key update
), fence as materialized (
    select runs.id, runs.session_id
      from runs
      join held on held.id = runs.session_id
     where runs.id = $run_id
       and owner_id = $owner_id and claim_epoch = $claim_epoch and state = 'running'
       and resume_turn = $resume_turn
       for no key update of runs
), bumped as (
    update sessions
       set last_seq = last_seq + cardinality($message_ids::uuid[])
      from fence
     where sessions.id = fence.session_id
    returning sessions.id, sessions.tenant_id, last_seq - cardinality($message_ids::uuid[]) as before
)
{insert_messages};

-- name: end_turn
-- The boundary of a turn: its results, or why its answer did not verify, resume_turn, iterations, usage,
-- attempts and the renewed lease.
with held as materialized (
    select id from sessions where id = $session_id for no key update
), fence as (
    update runs
       set resume_turn = $turn, iterations = $turn, usage = $usage, reclaims = 0,
           missing_since = null,
           attempts = attempts + $rejected::boolean::int,
           lease_expires_at = greatest(lease_expires_at,
                                       coalesce($now::timestamptz, now()) + $lease_ttl::interval)
      from held
     where runs.id = $run_id and runs.session_id = held.id
       and owner_id = $owner_id and claim_epoch = $claim_epoch and state = 'running'
       and resume_turn = $turn - 1
    returning runs.id, runs.session_id, runs.cancel_requested_at
), bumped as (
    update sessions
       set last_seq = last_seq + 1
      from fence
     where sessions.id = fence.session_id
    returning sessions.id, tenant_id, last_seq
), stored as (
    insert into messages (id, tenant_id, session_id, seq, run_id, turn, role, content, synthetic)
    select $message_id, tenant_id, id, last_seq, $run_id, $turn, 'user', $content, $synthetic
      from bumped
    returning *
)
select stored.*, fence.cancel_requested_at is not null as cancelled
  from stored, fence;

-- name: settle_run
-- The end of a run, with the last messages it stores.
with held as materialized (
    select id from sessions where id = $session_id for no key update
), fence as (
    update runs
       set state = $state, owner_id = null, lease_expires_at = null, last_owner_id = owner_id,
           finished_at = coalesce($now::timestamptz, now()),
           resume_turn = $iterations, iterations = $iterations, usage = $usage,
           stop_reason = $stop_reason, stopped_by = $stopped_by,
           error_code = $error_code, error = $error,
           final_message_id = coalesce($final_message_id::uuid,
                                       (select id from messages
                                         where messages.run_id = $run_id and role = 'assistant'
                                         order by turn desc limit 1))
      from held
     where runs.id = $run_id and runs.session_id = held.id
       and owner_id = $owner_id and claim_epoch = $claim_epoch and state = 'running'
       and resume_turn = $resume_turn
    returning runs.id, runs.tenant_id, runs.session_id, runs.state
), bumped as (
    update sessions
       set last_seq = last_seq + cardinality($message_ids::uuid[])
      from fence
     where sessions.id = fence.session_id
    returning sessions.id, sessions.tenant_id, last_seq - cardinality($message_ids::uuid[]) as before
), stored as (
    {insert_messages}
)
select fence.state, pg_notify('hango', concat_ws(' ', fence.session_id, fence.id, fence.tenant_id)) as notified,
       (select max(seq) from stored) as last_seq
  from fence;

-- name: release_run
-- The end of an execution that was cut short: cancelled if that was asked for, queued again otherwise.
-- What had arrived is stored only with the end of the run; a run that will be re-driven stores nothing.
-- Only while the lease holds: after that the decision is the sweep's.
with held as materialized (
    select id from sessions where id = $session_id for no key update
), fence as (
    update runs
       set state = case when cancel_requested_at is null then 'queued' else 'cancelled' end,
           finished_at = case when cancel_requested_at is not null
                              then coalesce($now::timestamptz, now()) end,
           owner_id = null, lease_expires_at = null, last_owner_id = owner_id,
           final_message_id = case when cancel_requested_at is not null
                                   then $final_message_id::uuid end
      from held
     where runs.id = $run_id and runs.session_id = held.id
       and owner_id = $owner_id and claim_epoch = $claim_epoch and state = 'running'
       and resume_turn = $resume_turn
       and lease_expires_at > coalesce($now::timestamptz, now())
    returning runs.id, runs.tenant_id, runs.session_id, runs.state
), bumped as (
    update sessions
       set last_seq = last_seq + cardinality($message_ids::uuid[])
      from fence
     where sessions.id = fence.session_id
       and fence.state = 'cancelled'
    returning sessions.id, sessions.tenant_id, last_seq - cardinality($message_ids::uuid[]) as before
), stored as (
    {insert_messages}
)
select fence.state, pg_notify('hango', concat_ws(' ', fence.session_id, fence.id, fence.tenant_id)) as notified,
       (select max(seq) from stored) as last_seq
  from fence;

-- name: postpone_run
-- Put back a run that this process cannot execute, for a process that can: after a pause that grows with
-- the time since the first try, and counted nowhere.  No row, too, once that time is $grace.
with fence as (
    update runs
       set state = case when cancel_requested_at is null then 'queued' else 'cancelled' end,
           finished_at = case when cancel_requested_at is not null
                              then coalesce($now::timestamptz, now()) end,
           owner_id = null, lease_expires_at = null, last_owner_id = owner_id,
           not_before = case when cancel_requested_at is null
                             then coalesce($now::timestamptz, now())
                                  + greatest(interval '1 second',
                                             least(interval '30 seconds',
                                                   (coalesce($now::timestamptz, now()) - missing_since) / 2))
                        end,
           missing_since = coalesce(missing_since, $now::timestamptz, now()),
           waiting_on = $waiting_on
     where id = $run_id
       and owner_id = $owner_id and claim_epoch = $claim_epoch
       and lease_expires_at > coalesce($now::timestamptz, now())
       and coalesce(missing_since, $now::timestamptz, now()) > coalesce($now::timestamptz, now()) - $grace::interval
    returning id, tenant_id, session_id, state
)
select state, pg_notify('hango', concat_ws(' ', session_id, id, tenant_id)) as notified from fence;

-- name: abandon_run
-- End the lease now: the next sweep takes the run back, and counts it.
update runs
   set lease_expires_at = least(lease_expires_at,
                                coalesce($now::timestamptz, now()) - interval '1 millisecond')
 where id = $run_id
   and owner_id = $owner_id and claim_epoch = $claim_epoch
returning id;

-- name: read_run_status
-- After a write that came to no row: what the run is now, and whether the message is there already.
select state, owner_id, claim_epoch, last_owner_id, reclaims, resume_turn,
       cancel_requested_at is not null as cancelled,
       exists (select from messages where messages.id = $message_id::uuid) as stored
  from runs
 where id = $run_id;
